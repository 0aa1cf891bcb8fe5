"""What a run will need, counted on fake tensors beside the same step on real ones; and how many
steps fit into some minutes.
"""

from __future__ import annotations

import dataclasses
import json
import time

import numpy as np
import pytest
import torch

import regard.cli
from regard.api import train_recipe
from regard.data.batching import Batch
from regard.errors import UserError
from regard.planning import plan_recipe
from regard.recipe import TrainRecipe, build
from regard.registry import MODELS
from regard.training import checkpoint, throughput, trainer
from regard.training.distributed import ALONE
from regard.training.loop import RECENT
from regard.training.objectives import NextTokenObjective
from regard.training.progress import Reporter
from regard.training.step import Stepper
from regard.training.throughput import (
    Clock,
    Forecast,
    Pace,
    TensorMemory,
    forecast_run,
    memory_of,
    peak_of,
    trace,
)
from regard.training.trainer import Trainer

RECIPE = TrainRecipe(steps=1000, device="cpu", compile="off")
SHAPES = [
    {"name": "transformer", "n_layers": 2, "d_model": 64},
    {"name": "transformer", "n_layers": 1, "d_model": 96, "window": 16},
    {"name": "transformer", "n_layers": 1, "d_model": 64, "mixers": ["linear"]},
    {"name": "transformer", "preset": "gpt2", "n_layers": 2, "d_model": 32},
    {"name": "hyena", "n_layers": 2, "d_model": 48},
    {"name": "cnn", "n_layers": 3, "d_model": 64},
]


def model_of(shape, max_len=128, vocabulary=50):
    recipe = build({"model": {**shape, "max_len": max_len}}).model
    return MODELS.get(recipe.name)(vocabulary, recipe.config).train()


def batch_of(rows=4, length=128):
    ids = torch.zeros(rows, length, dtype=torch.long)
    return Batch(ids, ids.clone(), None, np.arange(rows), rows * length, rows * length)


def stepper_of(model, recipe=RECIPE):
    return Stepper(model, recipe, lambda placed, rule=None: NextTokenObjective(placed), world=ALONE)


def real_step(model, batch, updates=0):
    """Live bytes of a real gradient, or of whole steps, weights included."""
    held = TensorMemory()
    with held:
        own = type(model)(model.vocab_size, model.config).train()
        stepper = stepper_of(own)
        # made inside, so that its bytes count as they do in a trace
        ids = torch.zeros_like(batch.ids)
        asked = batch.with_tensors(ids, torch.zeros_like(ids), None, None, None)
        for _ in range(max(1, updates)):
            stepper.gradient([asked], asked.symbols)
            if updates:
                stepper.update(stepper.norm())
    return held.peak


def test_tensors_are_counted_as_they_come_and_go():
    def work():
        a = torch.zeros(1000)  # 4,000 bytes
        b = a + 1  # 4,000 more
        c = b.view(10, 100)  # no more: the same memory
        del a, b, c
        d = torch.zeros(1500, dtype=torch.float64)  # 12,000, alone
        return d.sum()

    assert peak_of(work) == 12_008 + 0  # ... and the sum


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "-".join(map(str, s.values())))
def test_a_step_on_fake_tensors_holds_what_a_real_one_does(shape):
    model, batch = model_of(shape), batch_of()
    assert trace(model, batch, stepper_of(model)).peak == pytest.approx(
        real_step(model, batch), 0.02
    )


def test_what_a_fused_recurrence_keeps_is_added():
    model, batch = model_of({"name": "lstm", "n_layers": 2, "d_model": 64}), batch_of()
    held = trace(model, batch, stepper_of(model))
    assert held.inside > 0
    assert held.peak == pytest.approx(real_step(model, batch), 0.2)


@pytest.mark.parametrize("shape", SHAPES[::2], ids=lambda s: s["name"])
@pytest.mark.parametrize("rows", [1, 8])
def test_whole_steps_with_their_update_hold_what_is_forecast(shape, rows):
    model, batch = model_of(shape), batch_of(rows)
    stepper = stepper_of(model)
    found = forecast_run(model, [batch], RECIPE, stepper)
    assert found.tensors == pytest.approx(real_step(model, batch, updates=2), 0.2)
    assert found.parameters == sum(p.numel() for p in model.parameters())
    assert found.positions == rows * 128 and found.rows == rows


def test_gradients_that_wait_are_added_where_batches_are_several():
    model, batch = model_of(SHAPES[0]), batch_of()
    stepper = stepper_of(model)
    one, two = (forecast_run(model, [batch] * n, RECIPE, stepper) for n in (1, 2))
    assert one.gradients == 0 and two.gradients == 4 * one.parameters
    assert two.tensors > one.tensors


def test_of_a_short_run_of_a_small_model_nothing_is_asked():
    model, short = model_of(SHAPES[0], 16), dataclasses.replace(RECIPE, steps=3)
    stepper = stepper_of(model, short)
    assert forecast_run(model, [batch_of(1, 16)], short, stepper) is None


def example(**changes):
    given = dict.fromkeys(
        ("parameters", "weights", "state", "gradients", "inside", "update", "base"), 0
    )
    return Forecast(**given | {"activations": 0, "positions": 4096, "rows": 16} | changes)


CONFIG = build({"model": {"d_model": 128, "max_len": 256}}).model.config
CPU = torch.device("cpu")


def test_what_cannot_fit_is_refused_with_the_key_to_lower_and_a_value_that_fits(monkeypatch):
    monkeypatch.setattr(throughput, "memory_of", lambda device: 10 << 30)
    example(activations=9 << 30).check(RECIPE, CONFIG, CPU)  # fits
    many = dataclasses.replace(RECIPE, batch_tokens=65536, micro_tokens=4096)
    with pytest.raises(UserError, match=r"16\.0 GB, .*has 10\.0 GB.*train\.micro_tokens to 2,304"):
        example(activations=16 << 30).check(many, CONFIG, CPU)
    few = dataclasses.replace(RECIPE, batch_tokens=4096, micro_tokens=32768)
    with pytest.raises(UserError, match=r"train\.batch_tokens to 2,304"):
        example(activations=16 << 30).check(few, CONFIG, CPU)
    with pytest.raises(UserError, match=r"lower model\.max_len, now 256, or model\.d_model"):
        example(activations=16 << 30, rows=1).check(many, CONFIG, CPU)
    started = dataclasses.replace(many, init_from="runs/large")  # whose width is given
    with pytest.raises(UserError, match=r"lower model\.max_len, now 256$"):
        example(activations=16 << 30, rows=1).check(started, CONFIG, CPU)
    with pytest.raises(UserError, match=r"7 weights alone.*model\.d_model, now 128"):
        example(parameters=7, weights=12 << 30).check(many, CONFIG, CPU)


def test_a_process_holds_more_than_its_tensors_and_a_gpu_does_not():
    told = example(activations=1 << 30, base=1 << 28)
    assert told.memory == (1 << 28) + round(throughput.HOLES * (1 << 30))
    assert example(activations=1 << 30).memory == 1 << 30
    assert told.timed(0.5, 125.0).line() == "forecast: 1.8 GB of memory, 0.5 s a step, 2:05 in all"


def test_a_machine_has_memory():
    assert 1 << 28 < memory_of(CPU) < 1 << 50


def test_training_says_its_forecast_and_keeps_it(tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog " * 400)
    small = ["--set=model.n_layers=1", "--set=model.d_model=32", "--set=model.max_len=32"]
    small += ["--set=train.batch_tokens=128", "--set=train.steps=100", "--set=train.device=cpu"]
    run = tmp_path / "run"
    assert regard.cli.run(["train", str(text), *small, "--out", str(run)]) in (0, None)
    told = capsys.readouterr().err
    assert "forecast: " in told and "s a step" in told
    kept = json.loads((run / "regard.json").read_text())["forecast"]
    assert kept["seconds_per_step"] > 0 and kept["memory_bytes"] > kept["activation_bytes"] > 0


def test_weights_that_cannot_fit_are_refused_before_they_are_made(tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog " * 400)
    huge = ["--set=model.n_layers=400", "--set=model.d_model=32768", "--set=train.steps=1"]
    run = tmp_path / "run"
    assert regard.cli.run(["train", str(text), *huge, "--out", str(run)]) == 1
    told = capsys.readouterr().err
    assert "lower model.d_model, now 32,768" in told and "Traceback" not in told
    assert not run.exists()


# Steps that fit into some minutes

SMALL = ["model.name=transformer", "model.n_layers=1", "model.d_model=16", "train.batch_tokens=512"]
ON_CPU = ["train.device=cpu"]


@pytest.fixture
def words(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("".join(f"{'abcdefghij'[i % 10] * (2 + i % 7)}{i}\n" for i in range(2000)))
    return path


def test_a_clock_passes_each_mark_once(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(throughput.time, "monotonic", lambda: now[0])
    clock, passed = Clock(90.0, 60.0), []
    clock.start()  # ten seconds later: fifty are left
    for second in range(60):
        now[0] = 100.0 + second
        passed += [second] if clock.passes_mark() else []
    assert passed == [5, 20, 40]
    assert clock.left == -9 and clock.over


def test_steps_that_compile_are_not_counted(words, tmp_path, monkeypatch):
    """Steps that compile take seconds; counted, three minutes had room for one or two steps."""
    recipe, _ = plan_recipe([words], assignments=[*SMALL, "train.minutes=1"])
    now, taken = [0.0], []
    slow = {0: 20.0, 1: 9.0, 9: 5.0}  # compiling, capturing, a new shape

    def step(self, number):
        now[0] += slow.get(number, 0.01)
        taken.append(number)
        return 1.0, 1

    monkeypatch.setattr(Trainer, "take_step", step)
    monkeypatch.setattr(Trainer, "cost", lambda self, shard, stop=bool: None)
    monkeypatch.setattr(throughput.time, "monotonic", lambda: now[0])
    found = []
    measure = throughput.measure
    spy = lambda trainer, seconds: found.append(measure(trainer, seconds)) or found[-1]  # noqa: E731
    monkeypatch.setattr("regard.training.trainer.measure", spy)
    monkeypatch.setattr(Trainer, "run", lambda self: "interrupted")
    train_recipe(recipe, tmp_path / "run", began=0.0)
    assert found[0].per_step == pytest.approx(0.01)


def test_a_run_that_turns_out_slower_is_planned_again_and_ends_in_time(
    words, tmp_path, monkeypatch
):
    recipe, _ = plan_recipe([words], assignments=[*SMALL, "train.minutes=0.1"])
    real = Trainer.take_step

    def slow(self, number):
        if self.clock is not None:  # training, and no longer calibration
            time.sleep(0.02)
        return real(self, number)

    monkeypatch.setattr(Trainer, "take_step", slow)
    began = time.monotonic()
    result = train_recipe(recipe, tmp_path / "run", began=began)
    assert result.outcome == "done" and result.steps > 10
    assert time.monotonic() - began < 6 * 1.1 + 10
    assert f"steps = {result.steps}\n" in (tmp_path / "run" / "recipe.toml").read_text()


@pytest.fixture
def four_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("seconds", "tried", "chosen"),
    [
        ({4: 0.05, 2: 0.03, 1: 0.04}, [4, 2, 1], 2),
        ({4: 0.05, 2: 0.049}, [4, 2], 4),  # hardly faster
        ({4: 0.05, 2: 0.03, 1: 0.01}, [4, 2, 1], 1),
        ({4: 0.5}, [4], 4),  # of a long step, waiting is a small part
    ],
)
def test_fewer_threads_are_chosen_where_they_are_faster(
    seconds, tried, chosen, words, tmp_path, monkeypatch, four_threads, capsys
):
    recipe, _ = plan_recipe([words], assignments=[*SMALL, *ON_CPU, "train.minutes=0.05"])
    asked, used = [], []

    def measure(trainer, _):
        asked.append(torch.get_num_threads())
        return Pace(trainer, seconds[asked[-1]], 1e-6)

    def run(self):
        used.append(torch.get_num_threads())
        return "interrupted"

    monkeypatch.setattr("regard.training.trainer.measure", measure)
    monkeypatch.setattr(Trainer, "run", run)
    train_recipe(recipe, tmp_path / "run", reporter=Reporter())
    assert asked == tried and used == [chosen]
    assert torch.get_num_threads() == 4  # as before the run
    said = f"{chosen} of 4 threads compute: steps are faster so"
    assert (said in capsys.readouterr().err) == (chosen < 4)


def test_a_run_whose_steps_become_slow_goes_on_with_fewer_threads_and_resumes_with_these(
    words, tmp_path, monkeypatch, four_threads
):
    """Beside another program, threads that wait for each other made steps five times as long."""
    recipe, _ = plan_recipe([words], assignments=[*SMALL, *ON_CPU, "train.minutes=0.1"])
    monkeypatch.setattr(
        "regard.training.trainer.measure", lambda trainer, seconds: Pace(trainer, 0.004, 1e-6)
    )
    used = []

    def step(self, number):
        used.append(torch.get_num_threads())
        time.sleep(0.02 if used[-1] == 4 else 0.004)
        return 1.0, 1

    monkeypatch.setattr(Trainer, "take_step", step)
    result = train_recipe(recipe, tmp_path / "run")
    changed = used.index(2)
    assert changed == RECENT < result.steps and set(used[changed:]) == {2}
    _, state = checkpoint.newest(tmp_path / "run", print)
    assert state["threads"] == 2
    assert json.loads((tmp_path / "run" / "regard.json").read_text())["threads"] == 2
    torch.set_num_threads(4)
    trained_with = []

    def run(self):
        trained_with.append(torch.get_num_threads())
        return "interrupted"

    monkeypatch.setattr(Trainer, "run", run)
    train_recipe(recipe, tmp_path / "run", resume=True)
    assert trained_with == [2]


def test_the_observed_pace_leaves_out_what_is_not_steady(words, tmp_path):
    class World:
        size = 1

    class Loop:
        world = World

    pace = Pace(Loop, 1.0, 1.0).observed([0.5, 0.4, 9.0, 0.6], [8.0, 0.2, 0.3])
    assert pace.per_step == pytest.approx(0.5)  # one of them met something new
    assert pace.per_token == 0.3  # the middle of 0.2, 0.3, 1.0 and 8.0
    assert Pace(Loop, 1.0, 3.0).observed([1.0], []).per_token == 3.0
    assert Pace(Loop, 1.0, 3.0).observed([1.0], [9.0]).per_token == 3.0


def test_a_run_that_read_less_than_its_data_says_so(words, tmp_path, capsys):
    from regard.cli.train import report

    recipe, _ = plan_recipe([words], assignments=[*SMALL, "train.steps=3"])
    result = train_recipe(recipe, tmp_path / "run")
    assert result.epochs < 1
    report(result, "", False, 1.0)
    assert "training read only" in capsys.readouterr().out


def test_a_test_split_too_large_for_the_time_is_measured_in_part(tmp_path):
    rows = [f"{'ab'[i % 2] * (3 + i % 5)}{i}\t{'xy'[i % 2]}\n" for i in range(4000)]
    (tmp_path / "t.tsv").write_text("text\tkind\n" + "".join(rows))
    sets = [*SMALL, "data.target=kind", "data.test_fraction=0.5", "train.minutes=0.05"]
    recipe, _ = plan_recipe([tmp_path / "t.tsv"], assignments=sets)
    clock = Clock(time.monotonic(), 3.0)
    found = []

    class Spy(Trainer):
        def run(self):
            pace = Pace(self, 0.01, 1e-3)  # a slow machine: a millisecond for every token
            found.append((self.final_parts(9, pace), self.corpus.test.tokens))
            return "interrupted"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "Trainer", Spy)
        train_recipe(recipe, tmp_path / "run", began=clock.began)
    ((parts, tokens),) = found
    assert parts["test"] == throughput.FINAL_TOKENS // 8 < tokens
    assert parts["valid"] <= parts["test"]
