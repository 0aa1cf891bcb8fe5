"""One step: gradients add up over batches, are clipped, and the compiler may fail."""

from __future__ import annotations

import contextlib
import gc

import numpy as np
import pytest
import torch

from regard.api import train_recipe
from regard.data.batching import Batch
from regard.decoding.cuda_graphs import capturing
from regard.errors import UserError
from regard.models.decoder import Decoder, modern
from regard.planning import plan_recipe
from regard.recipe import TrainRecipe
from regard.tasks import seq2seq
from regard.training import step, trainer
from regard.training.distributed import ALONE
from regard.training.objectives import NextTokenObjective
from regard.training.step import Stepper, autocast, choose_device, choose_precision, idle, settings

CPU = torch.device("cpu")


def test_the_device_is_a_gpu_where_there_is_one():
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert choose_device("auto").type == expected and choose_device("cpu") == CPU


@pytest.mark.parametrize(
    ("name", "words"),
    [("gpu7", "is not a device"), ("meta", "is not supported"), ("cuda:99", "CUDA devices")],
)
def test_a_device_that_is_not_there_is_refused(name, words):
    with pytest.raises(UserError, match=words):
        choose_device(name)


def test_bf16_is_for_a_gpu():
    assert choose_precision(TrainRecipe(), CPU) == "fp32"
    assert choose_precision(TrainRecipe(precision="fp64"), CPU) == "fp64"
    with pytest.raises(UserError, match="bf16 is for a GPU"):
        choose_precision(TrainRecipe(precision="bf16"), CPU)
    x = torch.randn(2, 2)
    with autocast("bf16", CPU):
        assert (x @ x).dtype == torch.bfloat16
    with autocast("fp32", CPU):
        assert (x @ x).dtype == torch.float32


def test_other_gpus_are_mentioned_once_one_is_used(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert "--nproc-per-node 4" in idle(torch.device("cuda"))
    assert idle(CPU) == idle(torch.device("cuda:1")) == ""


def test_switches_are_put_back():
    before = torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled()
    with pytest.raises(KeyError), settings(TrainRecipe(), CPU):
        torch.set_float32_matmul_precision("medium")
        torch.use_deterministic_algorithms(True)
        raise KeyError
    after = torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled()
    assert after == before


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

    class Pretended(step.CapturedWork):
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
    recipe, _ = plan_recipe([captioned / "told.npz"], assignments=sets)
    train_recipe(recipe, captioned / "first")
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    monkeypatch.setattr(step.Stepper, "release", watched)
    train_recipe(recipe, captioned / "second")
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
    recipe, _ = plan_recipe([captioned / f"{what}.npz"], assignments=sets)
    seen, captures = [], []

    def looks(self, step):
        """What a step would change, without changing it."""
        nats, symbols = self.gradient(step)
        captures.append(self.stepper.captures)
        seen.append([nats.clone(), *(x.clone() for x in self.stepper.gradients().values())])
        return float(nats.sum()), symbols

    monkeypatch.setattr(seq2seq, "MAX_TRANSLATED", 4)
    monkeypatch.setattr(trainer.Trainer, "take_step", looks)
    train_recipe(recipe, captioned / "captured")
    for module in (step, trainer):
        monkeypatch.setattr(module, "may_capture", lambda recipe, world: False)
    train_recipe(recipe, captioned / "launched")
    assert captures == [True] * 5 + [False] * 5
    for one, other in zip(seen[:5], seen[5:], strict=True):
        for ours, plain in zip(one, other, strict=True):
            torch.testing.assert_close(ours, plain, atol=1e-5, rtol=1e-3)
    assert not torch.equal(seen[0][0], seen[1][0])  # steps differ


RECIPE = TrainRecipe(steps=10, device="cpu", compile="off")


def make(**settings):
    torch.manual_seed(0)
    recipe = TrainRecipe(**{"steps": 10, "device": "cpu", "compile": "off"} | settings)
    return Stepper(Decoder(9, modern(1, 16)).train(), recipe, NextTokenObjective, world=ALONE)


def batch(rows, seed=1):
    torch.manual_seed(seed)
    ids, targets = torch.randint(0, 9, (rows, 6)), torch.randint(0, 9, (rows, 6))
    return Batch(ids, targets, None, np.arange(rows), rows * 6, rows * 6)


def test_batches_of_a_step_add_up():
    stepper = make(precision="fp64")
    whole = batch(4)
    parts = [
        Batch(whole.ids[i : i + 2], whole.targets[i : i + 2], None, np.arange(2), 12, 12)
        for i in (0, 2)
    ]
    nats, gradients = [], []
    for batches in ([whole], parts):
        nats.append(float(stepper.gradient(batches, 24)))
        gradients.append([g.clone() for g in stepper.gradients().values()])
    assert nats[0] == pytest.approx(nats[1])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_a_gradient_is_not_longer_than_the_recipe_allows():
    stepper = make(clip=1e-3)
    stepper.gradient([batch(4)], 1)
    norm = stepper.norm()
    assert norm > 1
    stepper.optimizer.set_rates(1.0)
    stepper.update(norm)
    assert float(stepper.norm()) == pytest.approx(1e-3, rel=1e-3)


def test_what_the_compiler_cannot_do_is_done_without_it(monkeypatch):
    stepper = make(compile="on")

    def fails():
        raise RuntimeError("no compiler here\nand more")

    monkeypatch.setattr(stepper.model, "compile", fails)
    assert stepper.compile_for(batch(2), 10) == "no compiler here"
    assert not stepper.compiled and not stepper.gradients()
    assert stepper.how() == "cpu, fp32"


def test_nothing_is_compiled_on_a_cpu_unless_asked():
    stepper = make(compile="auto")
    assert stepper.compile_for(batch(2), 1 << 40) == "" and not stepper.compiled
    assert not stepper.captures and stepper.steady
