"""The training loop: the best weights are kept, stops cost only time, and the last weights may be
averaged.
"""

import json
import math
import os
import signal

import pytest
import torch
from torch import nn

from regard.api import train_recipe
from regard.data.corpus import prepare
from regard.errors import UserError
from regard.evaluation.language_modeling import MeanLoss
from regard.planning import plan_recipe
from regard.run import weights
from regard.storage import read_tensors
from regard.training import loop, throughput
from regard.training.loop import WeightAverage
from regard.training.progress import Reporter
from regard.training.throughput import Pace
from regard.training.trainer import Session, Trainer

SMALL = ["model.n_layers=1", "model.d_model=8", "train.batch_tokens=64", "train.steps=8"]
VARYING = ("seconds", "read_per_second", "memory_bytes")


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


def metrics(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in VARYING} for line in lines]


def test_validation_that_gives_no_number_stops_the_run(words, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "symbol_loss", lambda *_: MeanLoss(math.nan, None))
    recipe, _ = plan_recipe([words], assignments=SMALL)
    with pytest.raises(UserError, match="step 1: validation gives no number"):
        train_recipe(recipe, tmp_path / "run")
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_where_validation_is_infinite_the_last_model_is_kept(words, tmp_path, monkeypatch):
    """Forbidden transitions can make validation infinite, which no comparison gets past."""
    monkeypatch.setattr(loop, "symbol_loss", lambda *_: MeanLoss(math.inf, None))
    recipe, _ = plan_recipe([words], assignments=SMALL)
    result = train_recipe(recipe, tmp_path / "run")
    assert result.outcome == "done"
    last = read_tensors(tmp_path / "run" / "checkpoints" / "step-000008" / "model.safetensors")
    best = read_tensors(tmp_path / "run" / "model.safetensors")
    assert all(torch.equal(best[name], last[name]) for name in last)
    assert {m["value"] for m in metrics(tmp_path / "run") if m["event"] == "valid"} == {None}


def test_the_best_model_is_the_one_of_the_lowest_validation(words, tmp_path, monkeypatch):
    values = iter([3.0, 1.0, 2.0, 1.5, 1.0, 5.0, 4.0, 2.0])
    seen = []

    def scripted(*_):
        return MeanLoss(next(values), 0.5)

    recipe, _ = plan_recipe([words], assignments=[*SMALL, "train.eval_every=1"])
    monkeypatch.setattr(loop, "symbol_loss", scripted)
    write = loop.write_tensors
    monkeypatch.setattr(loop, "write_tensors", lambda *a: (seen.append(a[0].name), write(*a)))
    train_recipe(recipe, tmp_path / "run")
    facts = json.loads((tmp_path / "run" / "regard.json").read_text())
    assert facts["best_step"] == 2  # the first of the two equal ones
    assert seen == ["model.safetensors"] * 2


@pytest.mark.parametrize("moment", ["step", "validation"])
def test_a_run_stopped_by_a_signal_ends_like_one_that_was_not(words, tmp_path, monkeypatch, moment):
    """Also where the signal falls into a validation, which is cut short and made up for."""
    recipe, _ = plan_recipe(
        [words], assignments=[*SMALL, "train.eval_every=3", "train.checkpoint_every=100"]
    )
    train_recipe(recipe, tmp_path / "calm")
    pending = [True]

    def interrupt_once(*_):
        if pending:
            pending.clear()
            os.kill(os.getpid(), signal.SIGINT)

    scored, report = loop.log_probs, Trainer.report
    with monkeypatch.context() as patch:
        if moment == "validation":
            patch.setattr(loop, "log_probs", lambda *a, **k: (interrupt_once(), scored(*a, **k))[1])
        else:
            patch.setattr(Trainer, "report", lambda *a: (report(*a), interrupt_once())[0])
        stopped = train_recipe(recipe, tmp_path / "run")
    assert (stopped.outcome, stopped.signal) == ("interrupted", signal.SIGINT)
    assert stopped.steps == (3 if moment == "validation" else 1)
    assert not (tmp_path / "run" / "regard.json").exists()
    assert train_recipe(recipe, tmp_path / "run", resume=True).outcome == "done"
    for name in ("model.safetensors", "checkpoints/step-000008/optimizer.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "calm" / name).read_bytes()
    assert metrics(tmp_path / "run") == metrics(tmp_path / "calm")


def test_a_checkpoint_that_does_not_fit_the_recipe_is_refused(words, tmp_path):
    recipe, _ = plan_recipe([words], assignments=SMALL)
    train_recipe(recipe, tmp_path / "run")
    path = tmp_path / "run" / "recipe.toml"
    path.write_text(path.read_text().replace("d_ff = 32", "d_ff = 64"))
    with pytest.raises(UserError, match=r"does not fit its recipe\.toml"):
        train_recipe(recipe, tmp_path / "run", resume=True)


def test_two_processes_cannot_train_in_one_folder(words, tmp_path, monkeypatch):
    recipe, _ = plan_recipe([words], assignments=SMALL)
    report, said = Trainer.report, []

    def second(trainer, *arguments):
        report(trainer, *arguments)
        if trainer.progress.step == 2:
            with pytest.raises(UserError) as error:
                train_recipe(recipe, tmp_path / "run", resume=True)
            said.append(str(error.value))

    monkeypatch.setattr(Trainer, "report", second)
    assert train_recipe(recipe, tmp_path / "run").outcome == "done"
    assert said == [f"another process is training in {tmp_path / 'run'}"]


def test_the_time_left_is_told_after_twenty_steps(words, tmp_path):
    told = []
    trainer = trainer_of(words, tmp_path / "run")
    trainer.steps, trainer.reporter.show = 1000, lambda status: told.append(status.left)
    for step in range(1, 25):
        trainer.progress.step = step
        trainer.report(1.0, 100.0, 0.5, step)
    assert told[:19] == [None] * 19
    assert told[19] == pytest.approx(0.5 * 980)


def test_a_timed_run_that_overfits_goes_back_to_its_best_and_ends_early(
    words, tmp_path, monkeypatch
):
    """Three minutes on names were worse than half a minute: the best weights never annealed."""
    losses = {4: 3.0, 8: 2.0, 12: 2.5, 16: 2.6, 20: 2.7}  # by step; also measured to time it

    def cost(self, shard, stop=bool):
        return MeanLoss(losses.get(self.progress.step, 9.0), 0.1)

    monkeypatch.setattr(Trainer, "cost", cost)
    monkeypatch.setattr(throughput, "REPLANNED", ())
    monkeypatch.setattr(Pace, "steps_within", lambda self, clock, done=0: 100)
    sets = [one for one in SMALL if "steps" not in one] + [
        "train.minutes=0.5",
        "train.eval_every=4",
    ]
    recipe, _ = plan_recipe([words], assignments=sets)
    taken = []
    real = Trainer.restore_best

    def restore(self):
        real(self)
        taken.append({name: x.cpu().clone() for name, x in weights(self.model).items()})
        best = read_tensors(self.run_folder / "model.safetensors")
        assert all(torch.equal(best[name], taken[0][name]) for name in best)

    monkeypatch.setattr(Trainer, "restore_best", restore)
    result = train_recipe(recipe, tmp_path / "run")
    # best at step 8; clearly worse at 12, 16 and 20; four more steps, half of eight
    assert len(taken) == 1 and result.outcome == "done" and result.steps == 24
    assert "steps = 24\n" in (tmp_path / "run" / "recipe.toml").read_text()


def test_a_run_of_given_steps_is_never_cut_short(words, tmp_path, monkeypatch):
    values = iter([2.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0])
    monkeypatch.setattr(loop, "symbol_loss", lambda *_: MeanLoss(next(values), 0.1))
    recipe, _ = plan_recipe([words], assignments=[*SMALL, "train.eval_every=1"])
    assert train_recipe(recipe, tmp_path / "run").steps == recipe.train.steps


# The mean of the last weights


def test_it_is_the_mean_and_the_model_gets_its_own_weights_back():
    model, average = nn.Linear(3, 2), WeightAverage(3)
    seen = []
    for _ in range(3):
        nn.init.normal_(model.weight)
        seen.append(model.weight.detach().clone())
        average.add(model)
    with average.inside(model):
        torch.testing.assert_close(model.weight, torch.stack(seen).mean(0))
    assert torch.equal(model.weight, seen[-1])


@pytest.fixture(scope="module")
def short_words(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "words.txt"
    path.write_text("\n".join(f"{a}{b}{a}" for a in "abcdef" for b in "ghijk") + "\n")
    return path


def recipe_of(short_words, average):
    keys = ["model.n_layers=1", "model.d_model=16", "train.steps=20", "train.eval_every=5"]
    keys += ["train.batch_tokens=64", "train.checkpoint_every=1", f"train.average_last={average}"]
    keys += ["train.lr=0.5"]  # so high that steps go to and fro
    return plan_recipe([short_words], assignments=keys)[0]


def averages(run):
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == "average"]


def test_a_run_that_is_stopped_and_resumed_ends_with_the_same_mean(
    short_words, tmp_path, monkeypatch
):
    train_recipe(recipe_of(short_words, 3), tmp_path / "whole")
    assert len(averages(tmp_path / "whole")) == 1

    stop, take = 17, Trainer.take_step

    def dies(self, step):
        if step == stop:
            raise KeyboardInterrupt
        return take(self, step)

    monkeypatch.setattr(Trainer, "take_step", dies)
    with pytest.raises(KeyboardInterrupt):
        train_recipe(recipe_of(short_words, 3), tmp_path / "cut")
    monkeypatch.setattr(Trainer, "take_step", take)
    train_recipe(recipe_of(short_words, 3), tmp_path / "cut", resume=True)
    one, other = (read_tensors(tmp_path / run / "model.safetensors") for run in ("whole", "cut"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    found = [
        {k: v for k, v in averages(tmp_path / r)[0].items() if k != "seconds"}
        for r in ("whole", "cut")
    ]
    assert found[0] == found[1]


def test_one_validation_is_no_average(short_words, tmp_path):
    train_recipe(recipe_of(short_words, 1), tmp_path / "run")
    assert averages(tmp_path / "run") == []
