"""Gradients by distance: against finite differences, and the quick form at a tiny size."""

from __future__ import annotations

import numpy as np
import torch

from regard.data.batching import IGNORE
from regard.lab import gradients
from regard.lab.experiment import Options
from regard.models.recurrent import RecurrentConfig, RNNModel


def test_the_gradient_by_distance_is_that_of_finite_differences():
    torch.manual_seed(0)
    config = RecurrentConfig(n_layers=1, d_model=6, max_len=8)
    model = RNNModel(gradients.VOCABULARY, config).double().eval()
    batch = gradients.draw(4, 1, np.random.default_rng(0))
    norms = gradients.gradient_norms(model, batch)
    assert len(norms) == 5

    def loss(change):
        hook = model.embedding.register_forward_hook(lambda module, args, output: output + change)
        try:
            with torch.no_grad():
                return -float(model.score(batch.ids, batch.targets).sum())
        finally:
            hook.remove()

    for k in (0, 2, 4):
        slopes = []
        for d in range(6):
            step = torch.zeros(1, 5, 6, dtype=torch.float64)
            step[0, 4 - k, d] = 3e-3  # scores are in single precision
            slopes.append((loss(step) - loss(-step)) / 6e-3)
        assert np.isclose(norms[k], np.linalg.norm(slopes), rtol=1e-2)


def test_the_only_target_is_the_first_letter():
    batch = gradients.draw(6, 3, np.random.default_rng(1))
    assert batch.ids.shape == (3, 7) and (batch.ids[:, -1] == gradients.ASK).all()
    assert (batch.targets[:, :-1] == IGNORE).all()
    assert torch.equal(batch.targets[:, -1], batch.ids[:, 0])


def test_gradients_quick_form(monkeypatch):
    plan = gradients.Plan(length=36, steps=1, batch=2, tested=4, parameters=25_000)
    monkeypatch.setattr(gradients, "SMALL", plan)
    result = gradients.gradients(Options(quick=True))
    holds = {claim.name: claim.holds for claim in result.claims}
    assert holds["a convolution is blind beyond its field"]
    assert holds["gradients of a recurrence vanish"]
    assert holds["a window is blind beyond what its layers reach"]
    assert {row[0]: row[4] for row in result.tables[0].rows} == {
        gradients.RNN: "36",
        gradients.LSTM: "36",
        gradients.CNN: "never",
        gradients.ATTENTION: "1",
        gradients.WINDOWED: "never",
        gradients.LINEAR: "1",
        gradients.HYENA: "1",
    }


def test_interaction_distances_and_serial_steps():
    window, convolution = (gradients.MIXERS[n] for n in (gradients.WINDOWED, gradients.CNN))
    assert [window.hops(k) for k in (11, 12, 22, 23)] == ["1", "2", "2", "never"]
    assert [convolution.hops(k) for k in (1, 3, 8, 31)] == ["1", "2", "1", "5"]
    assert gradients.MIXERS[gradients.LSTM].serial(10, 3) == 12
    assert gradients.MIXERS[gradients.ATTENTION].serial(10, 3) == 3
