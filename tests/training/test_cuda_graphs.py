"""Steps captured as CUDA graphs have the gradients of steps that are launched kernel by kernel; and
nothing destroys a graph while another is captured. What needs a GPU is skipped without one.
"""

from __future__ import annotations

import contextlib
import gc

import numpy as np
import pytest
import torch

from regard.api import plan, train
from regard.decoding.cuda_graphs import capturing
from regard.tasks import seq2seq
from regard.training import cuda_graphs, step, trainer

needs_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def test_no_garbage_is_collected_while_something_is_captured(monkeypatch):
    seen = []

    @contextlib.contextmanager
    def pretended(graph, pool, capture_error_mode):
        seen.append(gc.isenabled())
        yield

    monkeypatch.setattr(torch.cuda, "graph", pretended)
    assert gc.isenabled()
    with capturing(None):
        seen.append(gc.isenabled())
    assert gc.isenabled()
    with pytest.raises(ValueError, match="inside"), capturing(None):
        raise ValueError("inside")
    assert gc.isenabled()
    gc.disable()
    try:
        with capturing(None):
            pass
        assert not gc.isenabled()  # as it was found
    finally:
        gc.enable()
    assert seen == [False, False, False, False]


@needs_a_gpu
def test_an_older_graph_may_be_garbage_while_another_is_captured():
    def captured():
        graph, x = torch.cuda.CUDAGraph(), torch.zeros(1, device="cuda")
        with capturing(graph):
            for _ in range(2000):  # objects enough for a collection
                x = x + [1.0, [], {}][0]
        return graph, x

    frequent = gc.get_threshold()
    gc.set_threshold(50, 1, 1)
    try:
        for _ in range(5):
            cycle = [captured()]
            cycle.append(cycle)
            del cycle
        graph, x = captured()
        graph.replay()
        assert x.item() == 2000
    finally:
        gc.set_threshold(*frequent)


def test_what_was_captured_gives_its_memory_back(monkeypatch):
    """Without a GPU: what is captured is asked for at the second sight of a shape, and again after
    it was released.
    """
    made = []

    class Pretended(cuda_graphs.CapturedWork):
        def _capture(self, held):
            made.append([tuple(x.shape) for x in held])
            return type("Graph", (), {"replay": lambda self: None})(), held, torch.ones(())

    work = Pretended(lambda x: x.sum(), torch.device("cpu"))
    steady = []
    for _ in range(4):
        work(torch.ones(3))
        steady.append(work.steady)
    assert made == [[(3,)]] and len(work.graphs) == 1
    assert steady == [False, False, True, True]  # the first runs as it is, the second captures
    work.release()
    assert not work.graphs
    for _ in range(4):
        work(torch.ones(3))
    assert made == [[(3,)]] * 2


@needs_a_gpu
def test_measuring_after_training_has_the_memory_of_captured_steps(captioned, monkeypatch):
    """PyTorch keeps the workspaces of matrix products, 64 MB or more, for ever: a first run takes
    them, and a second one is measured.
    """
    held = []
    release = step.Stepper.release

    def watched(self):
        held.append(torch.cuda.memory_reserved())
        release(self)
        held.append(torch.cuda.memory_reserved())

    monkeypatch.setattr(seq2seq, "MAX_TRANSLATED", 4)
    sets = ["model.n_layers=2", "model.d_model=64", "input.patch=2", "train.steps=6"]
    sets += [
        "model.name=transformer",
        "task.name=target",
        "data.target=captions",
        "train.device=cuda",
    ]
    recipe, _ = plan([captioned / "told.npz"], assignments=sets)
    train(recipe, captioned / "first")
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    monkeypatch.setattr(step.Stepper, "release", watched)
    train(recipe, captioned / "second")
    assert held[1] - before < (held[0] - before) / 2


@pytest.fixture
def captioned(tmp_path):
    """Pictures of one size, each with as many words as it has bars; and their labels."""
    random = np.random.default_rng(0)
    images = random.integers(0, 80, (90, 8, 12, 3), dtype=np.uint8)
    bars = np.arange(90) % 5
    for image, count in zip(images, bars, strict=True):
        image[:, : 2 * count] += 150
    captions = np.array([" ".join(["bar"] * count + ["end"]) for count in bars])
    np.savez(tmp_path / "told.npz", images=images, captions=captions)
    np.savez(tmp_path / "known.npz", images=images, labels=bars)
    return tmp_path


@needs_a_gpu
@pytest.mark.parametrize("what", ["told", "known"])
def test_captured_steps_have_the_gradients_of_launched_ones(what, captioned, monkeypatch):
    sets = ["model.n_layers=2", "model.d_model=32", "model.dropout=0", "input.patch=4"]
    sets += ["train.steps=5", "train.precision=fp32", "train.device=cuda", "train.batch_tokens=90"]
    sets += ["model.name=transformer", "augment.shift=0", "augment.rotate=0", "augment.scale=0"]
    sets += ["task.name=target", "data.target=captions"] if what == "told" else ["task.name=label"]
    recipe, _ = plan([captioned / f"{what}.npz"], assignments=sets)
    seen, captures = [], []

    def looks(self, step):
        """What a step would change, without changing it."""
        nats, symbols = self.gradient(step)
        captures.append(self.stepper.captures)
        seen.append([nats.clone(), *(x.clone() for x in self.stepper.gradients().values())])
        return float(nats.sum()), symbols

    monkeypatch.setattr(seq2seq, "MAX_TRANSLATED", 4)
    monkeypatch.setattr(trainer.Trainer, "take_step", looks)
    train(recipe, captioned / "captured")
    for module in (step, trainer):
        monkeypatch.setattr(module, "may_capture", lambda recipe, world: False)
    train(recipe, captioned / "launched")
    assert captures == [True] * 5 + [False] * 5
    for one, other in zip(seen[:5], seen[5:], strict=True):
        for ours, plain in zip(one, other, strict=True):
            torch.testing.assert_close(ours, plain, atol=1e-5, rtol=1e-3)
    assert not torch.equal(seen[0][0], seen[1][0])  # steps differ
