"""How many steps fit into some minutes: steady steps count, and later the run's own."""

import time

import pytest

from regard.api import plan, train
from regard.training import throughput
from regard.training.throughput import Clock, Pace
from regard.training.trainer import Trainer

SMALL = ["model.name=transformer", "model.n_layers=1", "model.d_model=16", "train.batch_tokens=512"]


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
    recipe, _ = plan([words], assignments=[*SMALL, "train.minutes=1"])
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
    monkeypatch.setattr("regard.training.session.measure", spy)
    monkeypatch.setattr(Trainer, "run", lambda self: "interrupted")
    train(recipe, tmp_path / "run", began=0.0)
    assert found[0].per_step == pytest.approx(0.01)


def test_a_run_that_turns_out_slower_is_planned_again_and_ends_in_time(
    words, tmp_path, monkeypatch
):
    recipe, _ = plan([words], assignments=[*SMALL, "train.minutes=0.1"])
    real = Trainer.take_step

    def slow(self, number):
        if self.clock is not None:  # training, and no longer calibration
            time.sleep(0.02)
        return real(self, number)

    monkeypatch.setattr(Trainer, "take_step", slow)
    began = time.monotonic()
    result = train(recipe, tmp_path / "run", began=began)
    assert result.outcome == "done" and result.steps > 10
    assert time.monotonic() - began < 6 * 1.1 + 10
    assert f"steps = {result.steps}\n" in (tmp_path / "run" / "recipe.toml").read_text()


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

    recipe, _ = plan([words], assignments=[*SMALL, "train.steps=3"])
    result = train(recipe, tmp_path / "run")
    assert result.epochs < 1
    report(result, "", False, 1.0)
    assert "training read only" in capsys.readouterr().out


def test_a_test_split_too_large_for_the_time_is_measured_in_part(tmp_path):
    rows = [f"{'ab'[i % 2] * (3 + i % 5)}{i}\t{'xy'[i % 2]}\n" for i in range(4000)]
    (tmp_path / "t.tsv").write_text("text\tkind\n" + "".join(rows))
    sets = [*SMALL, "data.target=kind", "data.test_fraction=0.5", "train.minutes=0.05"]
    recipe, _ = plan([tmp_path / "t.tsv"], assignments=sets)
    clock = Clock(time.monotonic(), 3.0)
    found = []

    class Spy(Trainer):
        def run(self):
            pace = Pace(self, 0.01, 1e-3)  # a slow machine: a millisecond for every token
            found.append((self.final_parts(9, pace), self.corpus.test.tokens))
            return "interrupted"

    session = pytest.importorskip("regard.training.session")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "Trainer", Spy)
        train(recipe, tmp_path / "run", began=clock.began)
    ((parts, tokens),) = found
    assert parts["test"] == throughput.FINAL_TOKENS // 8 < tokens
    assert parts["valid"] <= parts["test"]
