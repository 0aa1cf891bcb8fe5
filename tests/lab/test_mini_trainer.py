"""Small trainings: batches, windows of a text, models of one size, and seeds."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.data.collate import IGNORE
from regard.errors import UserError
from regard.lab.mini_trainer import (
    SizedModel,
    entropy_bits,
    fit_hmm,
    last_symbol_accuracy,
    last_symbol_batch,
    make_shard,
    mean_loss,
    next_symbol_batch,
    random_windows,
    read_stream,
    spread_windows,
    train_model,
)
from regard.models.hidden_markov import HiddenMarkov, HiddenMarkovConfig
from regard.models.parameter_matching import count_parameters

SIZED = SizedModel(family="transformer", changes=(("window", 4),))


def test_targets_are_all_next_symbols_or_the_last_alone():
    rows = torch.tensor([[1, 2, 3], [4, 5, 6]])
    batch = next_symbol_batch(rows)
    assert batch.ids.tolist() == [[1, 2], [4, 5]] and batch.targets.tolist() == [[2, 3], [5, 6]]
    assert batch.symbols == 4
    batch = last_symbol_batch(rows, torch.tensor([7, 8]))
    assert batch.targets.tolist() == [[IGNORE, IGNORE, 7], [IGNORE, IGNORE, 8]]
    assert batch.symbols == 2


def test_windows_predict_the_next_character_and_the_end_is_never_trained_on(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("abcdefghij" * 30)
    stream = read_stream(path, 100)
    assert stream.letters[stream.test[0]] == "b" and len(stream.test) == 30  # and a newline
    batch = random_windows(stream.train, 12, 5, 0, 3)
    assert batch.ids.shape == (5, 12) and (batch.ids[:, 1:] == batch.targets[:, :-1]).all()
    assert (batch.ids % 10 + 1 == batch.targets).all()
    assert spread_windows(stream.test, 7, 9).ids.shape == (4, 7)
    with pytest.raises(UserError, match="301 characters, at least 302"):
        read_stream(path, 302)


def test_a_sized_model_has_about_the_parameters_and_the_changed_fields():
    config = SIZED.config(9_000, 8, 20)
    assert config.window == 4 and config.max_len == 20 and config.n_layers == 2
    assert count_parameters("transformer", 8, config) == pytest.approx(9_000, rel=0.1)
    convolution = SizedModel(family="cnn", context=8).config(9_000, 8, 64)
    assert convolution.n_layers == 3 and convolution.max_len == 64


def test_training_depends_on_its_seed_alone_and_leaves_the_global_random_state():
    def batch_at(step):
        rows = np.random.default_rng(step).integers(0, 8, (4, 9))
        return next_symbol_batch(torch.from_numpy(rows))

    positions, losses = [], []

    def weights(seed):
        model = train_model(
            SIZED.builder(8_000, 8, 20),
            batch_at,
            3,
            seed,
            on_progress=positions.append,
            watch=lambda step, nats, model: losses.append(nats),
        )
        assert not model.training
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    torch.manual_seed(9)
    expected = torch.rand(3)
    torch.manual_seed(9)
    first = weights(0)
    assert torch.equal(torch.rand(3), expected)
    assert positions == [32, 32, 32] and losses[0] == pytest.approx(np.log(8), abs=0.5)
    assert torch.equal(weights(0), first) and not torch.equal(weights(1), first)


def test_a_gradient_that_is_not_finite_is_refused():
    def build():
        model = SIZED.builder(8_000, 8, 20)()
        with torch.no_grad():
            next(model.parameters()).fill_(torch.inf)
        return model

    batch = next_symbol_batch(torch.zeros(2, 5, dtype=torch.long))
    with pytest.raises(UserError, match="step 0: the gradient is not finite"):
        train_model(build, lambda step: batch, 1, 0)


def test_a_hidden_markov_model_stops_when_it_has_converged():
    rows = list(np.random.default_rng(0).integers(0, 5, (30, 6)))
    positions = []
    config = HiddenMarkovConfig(n_states=2, max_len=8)
    model = fit_hmm(make_shard(rows, 5), config, 3, 0, positions.append)
    assert 1 <= len(positions) <= 3 and set(positions) == {180}
    assert isinstance(model, HiddenMarkov)


def test_losses_and_accuracies_are_those_of_the_logits():
    torch.manual_seed(0)
    model = SIZED.builder(8_000, 8, 20)().eval()
    rows = torch.randint(0, 8, (5, 7))
    batch = next_symbol_batch(rows)
    with torch.no_grad():
        logs = model.logits(batch.ids).log_softmax(-1)
    expected = -logs.gather(-1, batch.targets[..., None]).mean()
    assert mean_loss(model, batch) == pytest.approx(float(expected), abs=1e-5)
    last = last_symbol_batch(batch.ids, logs[:, -1].argmax(-1))
    last.targets[0, -1] = (last.targets[0, -1] + 1) % 8
    assert last_symbol_accuracy(model, last, chunk=2).count == 4


def test_entropy_in_bits():
    weights = torch.tensor([[0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0]])
    assert entropy_bits(weights).tolist() == [2.0, 0.0]
