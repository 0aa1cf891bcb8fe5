"""Claims, intervals, pages, documents, curves and the progress of experiments."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import stats

from regard.data.batching import IGNORE
from regard.errors import UserError
from regard.lab import experiment as module
from regard.lab.experiment import (
    Accuracies,
    Claim,
    Interval,
    LabProgress,
    Mean,
    Options,
    Proportion,
    Result,
    SizedModel,
    curves,
    difference_interval,
    fit_hmm,
    last_symbol_accuracy,
    last_symbol_batch,
    make_shard,
    mean_loss,
    next_symbol_batch,
    quantile_interval,
    random_windows,
    read_stream,
    seed_curves,
    small_decoder,
    spread_windows,
    summary,
    train_model,
    unwrap,
)
from regard.look.page import Lines, Table
from regard.models import count_parameters
from regard.models.decoder import Decoder
from regard.models.hidden_markov import HiddenMarkov, HiddenMarkovConfig
from regard.training.progress import Reporter


def make_result(**changes):
    fields = {
        "title": "T",
        "answer": "A.",
        "question": "Q?",
        "reading": "R.",
        "claims": [Claim("one", "at most 1", "0.5", True), Claim("two", "<b>", "2", False)],
        "tables": [Table(["a", "b"], [["x", 1.5], ["y", None]], title="numbers")],
        "figures": [
            Lines([("s", [1.0, 2.0], [0.0, 1.0])], levels={"half": 0.5}, x_ticks=[1.0, 2.0])
        ],
    }
    return Result(**(fields | changes))


@pytest.mark.parametrize(("count", "total"), [(0, 7), (7, 7), (3, 7), (250, 500), (999, 1000)])
def test_the_ends_of_an_interval_satisfy_wilsons_equation(count, total):
    share = Proportion(count, total)
    for end in share.interval:  # (p̂ - p)² = z² p (1 - p) / n, unless it is cut at 0 or 1
        gap = abs(share.value - end)
        assert math.isclose(gap, 1.959964 * math.sqrt(end * (1 - end) / total), abs_tol=1e-9)


@pytest.mark.parametrize("p", [0.05, 0.3, 0.5, 0.95])
def test_intervals_contain_the_true_share_about_95_percent_of_the_time(p):
    n = 60
    mass = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    inside = [low <= p <= high for low, high in (Proportion(k, n).interval for k in range(n + 1))]
    assert 0.92 < sum(m for m, contains in zip(mass, inside, strict=True) if contains) < 0.985


def test_proportions_add_up_and_print_their_interval():
    assert Proportion(3, 4) + Proportion(1, 4) == Proportion(4, 8)
    assert str(Proportion(250, 500)) == "0.500 [0.456, 0.544]"
    assert Proportion(250, 500).percent == "50 [45.6, 54.4]"


def test_a_page_has_question_figure_claims_and_tables_and_escapes_their_markup(tmp_path):
    paths = make_result().write(tmp_path / "new", "exp", Reporter(quiet=True))
    assert [path.name for path in paths] == ["exp.html", "exp-01-lines.svg", "exp-01-lines.png"]
    page = paths[0].read_text()
    for word in ("Q?", "R.", "1 of 2 claims hold", "fails", "&lt;b&gt;", "numbers"):
        assert word in page
    assert "<b>" not in page and "<script src" not in page
    assert "half" in paths[1].read_text() or paths[1].stat().st_size > 1000
    assert paths[2].read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_there_is_a_page_and_a_warning(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    paths = make_result().write(tmp_path, "exp", Reporter(quiet=True))
    assert [path.name for path in paths] == ["exp.html"]
    assert "regard[plots]" in capsys.readouterr().err


def test_a_folder_that_cannot_be_created_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write to .*file"):
        make_result().write(tmp_path / "file", "exp", Reporter(quiet=True))


def test_a_document_has_claims_figures_and_tables():
    document = make_result().to_json([])
    assert json.loads(json.dumps(document, allow_nan=False)) == {
        "answer": "A.",
        "lecture": "",
        "claims": [
            {
                "name": "one",
                "stated": "at most 1",
                "measured": "0.5",
                "holds": True,
                "interval": None,
            },
            {"name": "two", "stated": "<b>", "measured": "2", "holds": False, "interval": None},
        ],
        "figures": [],
        "tables": [{"title": "numbers", "columns": ["a", "b"], "rows": [["x", "1.5"], ["y", "–"]]}],
    }


def test_progress_estimates_the_remaining_time_once_enough_is_done(monkeypatch):
    now, lines = [0.0], []
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    reporter = Reporter(quiet=True)
    monkeypatch.setattr(reporter, "show", lambda status: lines.append(status.line()))
    progress = LabProgress(reporter, 100.0)
    for seconds, units in ((3.0, 1.0), (6.0, 1.0), (20.0, 23.0), (22.0, 25.0), (40.0, 25.0)):
        now[0] = seconds
        progress.add("a", units)
    assert [lines[1], lines[2], lines[4]] == ["a 2%", "a 25% · 1:00 left", "a 75% · 0:13 left"]


def test_readings_must_match_the_figures():
    two = [*make_result().figures, *make_result().figures]
    page = make_result(figures=two, readings=["The other one."]).page().render()
    assert page.count("The other one.") == 1
    with pytest.raises(ValueError, match="readings must have one entry per figure but one"):
        make_result(readings=["too many"])


@pytest.mark.parametrize(
    ("interval", "holds"),
    [
        ((0.3, 0.4), True),
        ((0.2, 0.5), True),  # the ends belong to it
        ((0.0, 0.1), False),
        ((0.6, 0.9), False),
        ((0.1, 0.3), None),  # some of it
        ((0.1, 0.9), None),
        ((-math.inf, math.inf), None),
        ((math.nan, math.nan), None),
    ],
)
def test_the_interval_decides(interval, holds):
    """A number from a small experiment was taken at face value, and the claim failed."""
    claim = Claim.within("name", "stated", Interval(*interval), "text", least=0.2, most=0.5)
    assert claim.holds is holds
    words = {True: "holds", False: "fails", None: "too small to tell"}
    assert claim.verdict == words[holds]


def test_an_exact_claim_formats_its_value_and_includes_the_bounds():
    claim = Claim.exact("n", "s", 2e-6, "{:.1e}, the largest", most=2e-6)
    assert claim.holds is True and claim.measured == "2.0e-06, the largest"
    assert claim.interval is None
    assert Claim.exact("n", "s", 0.1, "{:.2f}", least=0.2).holds is False
    assert Claim.exact("n", "s", math.nan, least=0.2).holds is False


def test_a_brief_training_refutes_nothing_that_a_longer_one_may_reach():
    low = {"estimate": Interval(0.4, 0.5), "measured": "0.45", "least": 0.95}
    assert Claim.within("n", "s", **low).holds is False
    brief = Claim.within("n", "s", **low, may_rise=True)
    assert brief.holds is None and brief.interval == (0.4, math.inf)
    assert brief.measured == "0.45; the quick form is too brief to refute it"
    reached = Claim.within("n", "s", Interval(0.96, 0.98), "0.97", least=0.95, may_rise=True)
    assert reached.holds is True and reached.measured == "0.97"
    high = Interval(2, 4)
    assert Claim.within("n", "s", high, "3", most=1, may_rise=True).holds is False
    assert Claim.within("n", "s", high, "3", most=1, may_fall=True).holds is None
    one = Claim.within("n", "s", Mean.of([3.0]), most=1)
    assert one.holds is None and one.measured == "3; a single measurement has no interval"


def test_undecided_claims_neither_hold_nor_fail(tmp_path):
    undecided = Claim.within("three", "s", Interval(2, 4), "3", most=3)
    result = make_result(claims=[*make_result().claims, undecided])
    assert summary(result.claims) == "1 of 3 claims hold, 1 fails, 1 too small to tell"
    table = result.claims_table()
    assert [row[0] for row in table.rows] == ["holds", "fails", "too small to tell"]
    assert sorted(table.warn) == [1]
    claims = result.to_json([])["claims"]
    assert [claim["holds"] for claim in claims] == [True, False, None]
    assert claims[2]["interval"] == [2, 4]
    assert json.dumps(
        make_result(claims=[Claim("a", "s", "m", None, Interval(0.5, math.inf))]).to_json([])
    )
    assert "1 of 3 claims hold, 1 fails, 1 too small to tell" in result.page().render()


@pytest.mark.parametrize(("p", "q"), [(0.5, 0.5), (0.9, 0.6), (0.9, 0.85)])
def test_the_interval_of_a_difference_contains_it_about_95_percent_of_the_time(p, q):
    n = 40
    mass = [[math.comb(n, k) * x**k * (1 - x) ** (n - k) for k in range(n + 1)] for x in (p, q)]
    inside = 0.0
    for i in range(n + 1):
        for j in range(n + 1):
            low, high = difference_interval(Proportion(i, n), Proportion(j, n))
            inside += mass[0][i] * mass[1][j] * (low <= p - q <= high)
    assert 0.92 < inside < 0.99


def test_a_mean_has_the_interval_of_students_t():
    values = [1.0, 2.0, 4.0]
    low, high = stats.t.interval(0.95, 2, loc=7 / 3, scale=stats.sem(values))
    assert Mean.of(values).interval == (pytest.approx(low), pytest.approx(high))
    assert str(Mean.of([2.0])) == "2"
    assert quantile_interval(np.arange(1001)) == (25, 975)


def test_curves_share_their_xs_and_seeds_become_a_mean_with_a_range():
    lines = curves([1, 2, 3], {"a": [1.0, 2.0, 3.0], "b": [5.0]}, "t", ("x", "y"), log="y")
    assert lines.series == [("a", [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]), ("b", [1.0], [5.0])]
    assert (lines.title, lines.x_label, lines.y_label) == ("t", "x", "y")
    assert lines.log_y and not lines.log_x and not lines.x_ticks
    lines = seed_curves([1, 2], {"a": [[1.0, 4.0], [3.0, 4.0]]}, "t", ("x", "y"), ticks=True)
    assert lines.series == [("a", [1.0, 2.0], [2.0, 4.0])] and lines.x_ticks == [1.0, 2.0]
    assert lines.bands == {"a": ([1.0, 4.0], [3.0, 4.0])}


def test_dots_name_a_series():
    with pytest.raises(ValueError, match="dots must name a series"):
        Lines([("s", [1.0], [1.0])], dots=["t"])


def test_wrapped_text_becomes_paragraphs():
    assert (
        unwrap("""One
    line.

    Another
    one.""")
        == "One line.\n\nAnother one."
    )


def test_accuracies_make_a_table_lines_and_a_map_and_decide_claims():
    rows = {"good": {2: Proportion(98, 100), 8: Proportion(99, 100)}}
    rows["blind"] = {2: Proportion(990, 1000), 8: Proportion(497, 1000)}
    accuracies = Accuracies(rows, 0.5)
    table = accuracies.table("distance {}", "t")
    assert table.columns == ["model", "distance 2", "distance 8"]
    assert table.rows[0][1].startswith("98 [")
    lines = accuracies.lines("t", ("x", "y"))
    assert lines.levels == {"chance": 0.5} and lines.x_ticks == [2.0, 8.0]
    assert lines.bands["good"][0][0] == rows["good"][2].interval.low
    assert np.array_equal(accuracies.heatmap("t", "u").values, [[0.98, 0.99], [0.99, 0.497]])
    high = accuracies.claim_high("n", "good", 0.9)
    assert high.holds and high.measured.endswith("at 2, the lowest")
    assert accuracies.claim_high("n", "blind", 0.9, most=2).holds
    assert accuracies.claim_high("n", "blind", 0.9).holds is False
    assert accuracies.claim_chance("n", "blind", 0.06, least=3).holds
    assert accuracies.claim_chance("n", "blind", 0.06, least=2).holds is False
    assert accuracies.claim_high("n", "missing", 0.9) is None
    assert accuracies.claim_chance("n", "good", 0.06, least=9) is None


def test_options_count_seeds_from_the_first():
    assert list(Options(seed=3).seeds(2)) == [3, 4]


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
    assert mean_loss(model, batch) == pytest.approx(float(expected) / math.log(2), abs=1e-5)
    last = last_symbol_batch(batch.ids, logs[:, -1].argmax(-1))
    last.targets[0, -1] = (last.targets[0, -1] + 1) % 8
    assert last_symbol_accuracy(model, last, chunk=2).count == 4


@dataclass(frozen=True)
class Measured:
    share: Proportion
    losses: list[float]


def test_a_stopped_experiment_goes_on_with_the_parts_it_has(tmp_path):
    options, calls = Options(parts=tmp_path / "parts"), []

    def compute():
        calls.append(1)
        return Measured(Proportion(1, 3), [0.5, math.inf])

    first = options.part("one", "plan", Measured, compute)
    assert options.part("one", "plan", Measured, compute) == first and len(calls) == 1
    (stored,) = (tmp_path / "parts").iterdir()
    options.part("one", "another plan", Measured, compute)
    options.part("two", "plan", Measured, compute)
    assert len(calls) == 3
    stored.write_text("{")  # a process was killed
    assert options.part("one", "plan", Measured, compute) == first and len(calls) == 4
    Options().part("one", "plan", Measured, compute)
    assert len(calls) == 5  # without a folder nothing is stored


def test_parts_of_another_file_are_not_taken(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    options = Options(parts=tmp_path, file=tmp_path / "a.txt")
    assert options.part("one", "plan", float, lambda: 1.0) == 1.0
    (tmp_path / "a.txt").write_text("b")
    assert options.part("one", "plan", float, lambda: 2.0) == 2.0


def test_the_answer_names_who_is_above_chance_at_the_greatest_distance():
    rows = {"a": {1: Proportion(50, 50), 8: Proportion(25, 50)}, "b": {8: Proportion(50, 50)}}
    rows["b"] = {1: Proportion(1, 50), **rows["b"]}
    answer = Accuracies(rows, 0.5).answer("{} back")
    assert answer == "8 back: b (100%); not above chance, 50%: a."


def test_label_smoothing_reaches_the_loss():
    """The setting was accepted and had no effect."""
    ids = torch.randint(0, 5, (4, 9), generator=torch.Generator().manual_seed(0))
    trained = [
        train_model(
            lambda: Decoder(5, small_decoder(8)),
            lambda step: next_symbol_batch(ids),
            2,
            0,
            label_smoothing=smoothing,
        )
        for smoothing in (0.0, 0.3)
    ]
    first, second = (torch.cat([p.flatten() for p in model.parameters()]) for model in trained)
    assert not torch.equal(first, second)
