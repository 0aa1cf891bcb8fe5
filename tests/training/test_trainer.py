"""Gradient steps: the loss is what it says, and nothing moves after a NaN."""

import math
import random
import shutil
import time
from pathlib import Path

import pytest
import torch
from interruptions import finish, kill, outcome, wait_for

import regard.cli
from regard.data.corpus import prepare
from regard.errors import UserError
from regard.planning import plan_recipe
from regard.training.progress import Reporter
from regard.training.trainer import Session

SMALL = ["model.n_layers=1", "model.d_model=8", "train.batch_tokens=64", "train.steps=8"]
SMALL += ["train.device=cpu"]  # bits are compared


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
    recipe, _ = plan_recipe([words], assignments=[*SMALL, *assignments])
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


NEURAL = [
    "train.steps=40",
    "train.batch_tokens=96",
    "train.checkpoint_every=3",
    "train.eval_every=5",
]
NEURAL += ["model.n_layers=1", "model.d_model=8", "model.max_len=12", "model.dropout=0.2"]


def start(processes, words, run, model, *more):
    options = [f"--set={key}" for key in NEURAL] if model != "bigram" else []
    arguments = ["train", str(words), "--out", str(run), "--model", model, "--quiet", *options]
    process = processes.Process(target=regard.cli.main, args=([*arguments, *more],))
    process.start()
    return process


def seconds_of(process, run: Path) -> float:
    """How long a run takes from the moment its folder appears."""
    wait_for(process, run)
    began = time.monotonic()
    assert finish(process) == 0
    return time.monotonic() - began


@pytest.mark.parametrize(
    ("model", "inside_a_save"),
    [
        ("transformer", True),
        *(
            pytest.param(m, inside, marks=pytest.mark.slow)
            for m in ("bigram", "lstm", "transformer")
            for inside in (False, True)
            if (m, inside) not in (("bigram", True), ("transformer", True))
        ),
    ],
)
def test_a_run_killed_and_resumed_ends_like_one_never_killed(
    processes, words, tmp_path, model, inside_a_save
):
    calm, killed = tmp_path / "calm", tmp_path / "killed"
    whole = seconds_of(start(processes, words, calm, model), calm)
    moments = random.Random(model)

    def attempt() -> bool:
        process = start(processes, words, killed, model, "--resume")
        if inside_a_save:
            wait_for(process, killed / "checkpoints", ".tmp")
        else:
            wait_for(process, killed)
            process.join(moments.uniform(0, 0.6) * whole)
        return kill(process)

    while not attempt():  # it had ended before: every one of the five is killed
        shutil.rmtree(killed)
    assert finish(start(processes, words, killed, model, "--resume")) == 0
    assert outcome(killed) == outcome(calm)
    assert not [p for p in killed.rglob(".*") if p.suffix in (".tmp", ".part")]
