"""Gradient steps: the loss is what it says, and nothing moves after a NaN."""

import math

import pytest
import torch

from regard.api import plan
from regard.data.corpus import prepare
from regard.errors import UserError
from regard.training.progress import Reporter
from regard.training.session import Session

SMALL = ["model.n_layers=1", "model.d_model=8", "train.batch_tokens=64", "train.steps=8"]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def words(tmp_path):
    path = tmp_path / "words.txt"
    letters = "abcde"
    lines = [letters[i % 5 :: 1 + i % 3] + letters[: i % 4] for i in range(150)]
    path.write_text("\n".join(line or "a" for line in lines) + "\n")
    return path


def trainer_of(words, run, *assignments):
    recipe, _ = plan([words], assignments=[*SMALL, *assignments])
    run.mkdir(exist_ok=True)
    session = Session(run, False, Reporter(quiet=True), 0.0)
    return session.trainer(recipe, prepare(recipe, run, print), None)


def test_a_step_reports_the_cost_of_its_symbols_before_the_update(words, tmp_path):
    trainer = trainer_of(words, tmp_path / "run", "model.dropout=0")
    batches = trainer.loader.step(0)
    expected = symbols = 0.0
    with torch.no_grad():
        for batch in batches:
            logs = trainer.model.logits(batch.ids, batch.segments).log_softmax(-1)
            wanted = batch.targets != -1
            picked = logs.gather(-1, batch.targets.clamp_min(0)[..., None])[..., 0]
            expected -= float(picked[wanted].sum())
            symbols += int(wanted.sum())
    nats, counted = trainer.take_step(0)
    assert counted == symbols
    assert nats == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_accumulating_over_micro_batches_gives_the_gradient_of_the_whole(
    words, tmp_path, optimizer
):
    gradients = []
    for micro in (16, 4096):
        options = [f"train.optimizer={optimizer}", f"train.micro_tokens={micro}"]
        options += ["model.dropout=0", "train.precision=fp64"]
        trainer = trainer_of(words, tmp_path / str(micro), *options)
        parts = len(trainer.loader.step(0))
        trainer.gradient(0)
        gradients.append([p.grad.clone() for p in trainer.model.parameters()])
    assert parts == 1
    for a, b in zip(*gradients, strict=True):
        assert a == pytest.approx(b, abs=1e-12)


def test_a_poisoned_weight_stops_the_step_before_the_update(words, tmp_path):
    trainer = trainer_of(words, tmp_path / "run")
    trainer.take_step(0)
    with torch.no_grad():
        trainer.model.head.weight[3, 2] = math.nan
    before = [p.detach().clone() for p in trainer.model.parameters()]
    records = trainer.loader.records_of(1)
    with pytest.raises(UserError) as error:
        trainer.take_step(1)
    said = str(error.value)
    assert said.startswith("step 1: head.weight is not finite (loss nan)")
    assert ", ".join(map(str, records[:5])) in said
    after = list(trainer.model.parameters())
    assert all(
        torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(before, after, strict=True)
    )


def test_an_infinite_gradient_is_named(words, tmp_path):
    trainer = trainer_of(words, tmp_path / "run")
    parameter = dict(trainer.model.named_parameters())["embedding.weight"]
    parameter.register_hook(lambda gradient: gradient + math.inf)
    with pytest.raises(UserError, match=r"step 0: the gradient of embedding.weight is not finite"):
        trainer.take_step(0)
