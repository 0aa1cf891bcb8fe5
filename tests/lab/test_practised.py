"""Experiments that train: what they measure, against oracles, and their reports at a tiny size."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from regard.api import train
from regard.bundled import NAMES
from regard.data.batching import IGNORE
from regard.errors import UserError
from regard.lab import agreement, gradients, heads, scaling, tricks
from regard.lab.agreement import ID, NGRAM, RUNGS, VERB_IDS, agrees, shard_of, unseen
from regard.lab.heads import Losses, Subject, learned, of_run
from regard.lab.heads import Plan as HeadPlan
from regard.lab.result import Options, Share
from regard.lab.scaling import Law, fit, forecast
from regard.models.decoder import Decoder
from regard.models.hidden_markov import HiddenMarkovConfig
from regard.models.recurrent import RecurrentConfig, RNNModel
from regard.recipe import build
from regard.registry import family

QUICK = Options(quick=True)


# tricks


def test_a_block_without_residuals_is_its_parts_one_after_the_other():
    config = dataclasses.replace(tricks.SMALL.config, norm="none")
    torch.manual_seed(0)
    model = tricks.StraightDecoder(5, config).eval()
    block = model.blocks[0]
    x = torch.randn(2, 7, config.d_model)
    place, _ = model.place(torch.zeros(2, 7, dtype=torch.long), None, whole=False)
    expected = block.feedforward(block.mixer(x, place))
    assert torch.allclose(block(x, place), expected)
    usual = Decoder(5, config)
    assert {n for n, _ in usual.named_parameters()} == {n for n, _ in model.named_parameters()}


def test_every_trick_is_tried_from_the_same_start_and_gradients_are_by_layer():
    plan = tricks.Plan(steps=2, seeds=1, n_layers=2, length=12, batch=2, tested=4)
    stream = tricks.stream_of(None, 100)
    base, cold = (
        tricks.run(tricks.VARIANTS[n], plan, stream, 0, lambda: None)
        for n in (tricks.ALL, tricks.COLD)
    )
    assert base.first == cold.first and len(base.first) == 2  # warm-up changes no first gradient
    assert base.nats[0] == cold.nats[0] and 1 < base.loss < 6
    config = dataclasses.replace(plan.config)
    torch.manual_seed(tricks_seed())
    model = Decoder(len(stream.letters), config).train()
    batch = tricks.drawn(stream.train, 12, 2, 0, 0)
    (-model.score(batch.ids, batch.targets).sum() / batch.symbols).backward()
    by_hand = [sum(float((p.grad**2).sum()) for p in b.parameters()) ** 0.5 for b in model.blocks]
    assert np.allclose(base.first, by_hand, rtol=1e-4)


def tricks_seed():
    from regard.training.loop import seed_of

    return seed_of(0)


def test_a_training_that_breaks_down_is_infinitely_bad_and_said(monkeypatch):
    def broken(*a, **k):
        raise UserError("the gradient is not finite")

    monkeypatch.setattr(tricks, "teach", broken)
    stream = tricks.stream_of(None, 100)
    trial = tricks.run(tricks.Variant(), tricks.SMALL, stream, 0, lambda: None)
    assert math.isinf(trial.loss)


def trials(loss, first=(1.0, 1.0)):
    one = tricks.Trial([0, 1], [3.0, 2.0], [2.0, 1.0], list(first), loss)
    return [one, one]


def test_tricks_hold_where_figures_say_so_and_fail_where_not():
    found = {name: trials(2.0) for name in tricks.VARIANTS}
    assert all(claim.holds is False for claim in tricks.claims(found))
    one = {name: rows[:1] for name, rows in found.items()}
    assert all(claim.holds is None for claim in tricks.claims(one))  # of one seed nothing is known
    found |= {
        n: trials(2.2) for n in (tricks.BARE, tricks.UNSCALED, tricks.POST_COLD, tricks.SMOOTH)
    }
    found[tricks.STRAIGHT] = trials(math.inf, (0.01, 1.0))
    assert all(claim.holds for claim in tricks.claims(found))
    page = tricks.report(found, tricks.SMALL).page().render()
    assert "no residual" in page


# gradients


def test_the_gradient_by_distance_is_that_of_finite_differences():
    torch.manual_seed(0)
    model = (
        RNNModel(gradients.VOCABULARY, RecurrentConfig(n_layers=1, d_model=6, max_len=8))
        .double()
        .eval()
    )
    batch = gradients.draw(4, 1, np.random.default_rng(0))
    found = gradients.reach(model, batch)
    assert len(found) == 5

    def loss(moved):
        held = torch.zeros(1, 5, 6, dtype=torch.float64) + moved
        hook = model.embedding.register_forward_hook(lambda m, i, o: o + held)
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
        assert np.isclose(found[k], np.linalg.norm(slopes), rtol=1e-2)


def test_the_first_letter_is_asked_for_and_only_that():
    batch = gradients.draw(6, 3, np.random.default_rng(1))
    assert batch.ids.shape == (3, 7) and (batch.ids[:, -1] == gradients.ASK).all()
    assert (batch.targets[:, :-1] == IGNORE).all()
    assert torch.equal(batch.targets[:, -1], batch.ids[:, 0])


def test_gradients_quick_form(monkeypatch):
    plan = gradients.Plan(length=36, steps=1, batch=2, tested=4, parameters=25_000)
    monkeypatch.setattr(gradients, "SMALL", plan)
    result = gradients.gradients(QUICK)
    held = {claim.name: claim.holds for claim in result.claims}
    assert (
        held["a convolution is blind beyond its field"] and held["gradients of a recurrence vanish"]
    )
    assert {row[0]: row[4] for row in result.tables[0].rows} == {
        gradients.RNN: "36",
        gradients.LSTM: "36",
        gradients.CNN: "never",
        gradients.ATTENTION: "1",
        gradients.WINDOW: "never",
        gradients.LINEAR: "1",
        gradients.HYENA: "1",
    }
    assert held["a window is blind beyond what its layers reach"]
    assert [gradients.MIXERS[gradients.WINDOW].hops(k) for k in (11, 12, 22, 23)] == [
        "1",
        "2",
        "2",
        "never",
    ]
    assert [gradients.MIXERS[gradients.CNN].hops(k) for k in (1, 3, 8, 31)] == ["1", "2", "1", "5"]


# agreement


def test_sentences_agree_whatever_stands_between():
    sentences = agreement.draw(2, 200, np.random.default_rng(0))
    plural = set(agreement.NOUN_IDS[:, 1].tolist()) | set(VERB_IDS[:, 1].tolist())
    for row, number in zip(sentences.ids, sentences.numbers, strict=True):
        assert (row[2] in plural) == (row[-2] in plural) == bool(number)
        assert row[0] == ID["<S>"] and row[-1] == ID["<E>"] and len(row) == 11
    nearest = np.isin(sentences.ids[:, -3], list(plural)) == sentences.numbers
    assert 0.35 < nearest.mean() < 0.65


def test_counting_rungs_agree_as_far_as_they_see_and_held_out_sentences_are_new():
    plan = dataclasses.replace(agreement.SMALL, phrases=(0, 1, 4), sentences=500, tested=150)
    parts = agreement.corpus(plan, 0)
    model = RUNGS[NGRAM](plan, parts, 0, lambda units: None)
    tests = [unseen(plan, m, part, 0) for m, part in zip(plan.phrases, parts, strict=True)]
    known = {row.tobytes() for row in parts[2].ids}
    assert not any(row.tobytes() in known for row in tests[2].ids)
    found = [agrees(model, test).value for test in tests]
    assert found[0] == 1 and found[1] > 0.95 and abs(found[2] - 0.5) < 0.15
    assert shard_of(parts).records == 1500


def test_agreement_quick_form(monkeypatch):
    plan = dataclasses.replace(
        agreement.SMALL, phrases=(0, 4), sentences=60, steps=1, tested=40, passes=1
    )
    monkeypatch.setattr(agreement, "SMALL", plan)
    monkeypatch.setattr(agreement, "SEES", 8)
    result = agreement.agreement(QUICK)
    assert [row[0] for row in result.tables[0].rows] == list(RUNGS) and len(result.claims) == 8


@pytest.mark.parametrize("value", [1.0, 0.5])
def test_agreement_claims_follow_their_figures(value):
    found = {name: {m: Share(int(400 * value), 400) for m in (0, 1, 2, 8)} for name in RUNGS}
    held = [claim.holds for claim in agreement.claims(found)]
    assert held == [
        value == 0.5,
        value == 1,
        value == 0.5,
        value == 1,
        value == 0.5,
        value == 1,
        value == 1,
        value == 1,
    ]


# heads


def induction_subject():
    subject = learned(HeadPlan(steps=1, batch=2, half=6), QUICK)
    return subject


def test_where_a_head_looks_is_measured_as_defined():
    ids = torch.tensor([[1, 2, 3, 1, 2]])
    weights = torch.zeros(1, 5, 5)
    weights[0, 0, 0] = weights[0, 1, 0] = weights[0, 2, 1] = 1
    weights[0, 3, 1] = 1.0  # 1 was followed by 2, at place 1: induction
    weights[0, 4, 1] = 0.5  # the same token ...
    weights[0, 4, 2] = 0.5  # ... and what followed it
    bits, offset, previous, same, after = heads.where(weights, ids, None)
    assert bits == pytest.approx(1 / 5) and offset == pytest.approx((0 + 1 + 1 + 2 + 2.5) / 5)
    assert previous == pytest.approx(2 / 4)
    assert same == pytest.approx(0.5 / 2) and after == pytest.approx((1 + 0.5) / 2)


def test_a_head_taken_away_writes_nothing_and_comes_back():
    subject = induction_subject()
    model, (ids, _, _) = subject.model, subject.batches[0]
    before = model.logits(ids).detach()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    places = [(layer, head) for layer in range(2) for head in range(4)]
    with heads.without(model, places), torch.no_grad():
        x = model.embedding(ids)
        for block in model.blocks:  # attention adds nothing: each token alone
            x = x + block.feedforward(block.feedforward_norm(x))
        assert torch.allclose(model.logits(ids), model.head(model.norm(x)), atol=1e-5)
    assert torch.equal(model.logits(ids).detach(), before)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in state.items())


def test_heads_quick_form_and_what_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(heads, "SMALL", HeadPlan(steps=1, batch=2, half=6))
    result = heads.heads(QUICK)
    assert len(result.tables[0].rows) == 8 and len(result.claims) == 4
    curves = {name: ys for name, _, ys in result.figures[0].series}
    assert all(len(ys) == 9 for ys in curves.values())
    ends = [ys[-1] for ys in curves.values()]
    assert np.allclose(ends, ends[0])  # whatever the order, in the end none is left
    with pytest.raises(UserError, match="no run folder"):
        heads.heads(Options(quick=True, file=tmp_path / "none"))


# scaling


def test_a_power_law_is_found_again_and_forecasts():
    law, sizes = Law(1.5, 40.0, 0.5), [1000, 2000, 4000, 8000, 16000]
    found = fit(sizes, [law.at(n) for n in sizes])
    assert abs(found.power - 0.5) < 0.03 and abs(found.floor - 1.5) < 0.05
    measured = {n: [law.at(n)] for n in [*sizes, 32000]}
    said, mean, (low, high) = forecast(measured, np.random.default_rng(0))
    assert abs(mean.value - law.at(32000)) < 0.01 and low <= said.power <= high
    flat = fit(sizes, [2.0, 2.1, 2.0, 2.1, 2.2])
    assert flat.power == 0  # no law rises


def test_scaling_quick_form(monkeypatch, tmp_path):
    plan = scaling.Plan(
        characters=(200, 400, 800, 1600),
        sizes=(3000, 5000, 8000),
        steps=1,
        seeds=1,
        length=8,
        batch=2,
        tested=4,
    )
    monkeypatch.setattr(scaling, "SMALL", plan)
    monkeypatch.setattr(scaling, "BOOTSTRAPS", 20)
    path = tmp_path / "text.txt"
    path.write_text("to be or not to be\n" * 60)
    result = scaling.scaling(Options(quick=True, file=path))
    rows = {row[0]: row for row in result.tables[0].rows}
    assert (
        rows["data"][4] == 975 and len(result.claims) == 4
    )  # nine tenths of the file, less a twentieth
    assert [len(figure.series[0][1]) for figure in result.figures] == [5, 3]


def test_a_hidden_model_stops_when_nothing_is_gained():
    from regard.lab.mini_trainer import pass_over

    parts = [agreement.draw(0, 30, np.random.default_rng(0))]
    told = []
    model = pass_over(
        shard_of(parts), HiddenMarkovConfig(n_states=2, max_len=8), 3, 0, lambda: told.append(1)
    )
    assert 1 <= len(told) <= 3 and isinstance(model, family("hmm"))


def test_the_heads_of_a_run_are_described_on_its_held_out_part(tmp_path):
    names = tmp_path / "names.txt"
    names.write_text("\n".join(NAMES.read_text().split()[::100]) + "\n")
    asked = {"data": {"train": [str(names)]}, "train": {"steps": 2, "batch_tokens": 256}}
    asked["tokens"] = {"kind": "characters"}
    asked["model"] = {"n_layers": 1, "d_model": 32, "n_heads": 2, "n_kv_heads": 2, "d_head": 16}
    train(build(asked), tmp_path / "run")
    result = heads.heads(Options(file=tmp_path / "run"))
    assert len(result.tables[0].rows) == 2 and "run, its test part" in result.title
    assert "<S>" in result.panels[0].tokens
    train(build(asked | {"model": {"name": "bigram"}}), tmp_path / "counts")
    with pytest.raises(UserError, match="holds a Bigram: this takes a decoder-only Transformer"):
        heads.heads(Options(file=tmp_path / "counts"))


def test_layers_without_heads_are_left_out_and_a_run_without_any_is_refused(tmp_path):
    """The run of a Hyena model ended in a traceback: its rows cannot be packed."""
    names = tmp_path / "names.txt"
    names.write_text("\n".join(NAMES.read_text().split()[::100]) + "\n")
    asked = {"data": {"train": [str(names)]}, "train": {"steps": 2, "batch_tokens": 256}}
    asked["tokens"] = {"kind": "characters"}
    train(build(asked | {"model": {"name": "hyena", "n_layers": 1}}), tmp_path / "hyena")
    with pytest.raises(UserError, match=r"its layers are hyena, which have no attention heads"):
        heads.heads(Options(file=tmp_path / "hyena"))
    shape = {"n_layers": 3, "d_model": 32, "n_heads": 2, "n_kv_heads": 2, "d_head": 16}
    shape["mixers"] = ["hyena", "attention", "linear"]
    train(build(asked | {"model": shape}), tmp_path / "both")
    subject = of_run(tmp_path / "both")
    assert {head.name for head in heads.describe(subject)} == {
        f"layer {layer}, head {head}" for layer in (2, 3) for head in (1, 2)
    }
    assert heads.maps(subject).layers == ["layer 2", "layer 3"]
    # padding beside shorter records changes nothing
    ids, targets, _ = subject.batches[0]
    one = Subject(subject.model, [(ids[:1], targets[:1], None)], "")
    real = int((targets[0] != IGNORE).sum())
    alone = Subject(subject.model, [(ids[:1, :real], targets[:1, :real], None)], "")
    for padded, plain in zip(heads.describe(one), heads.describe(alone), strict=True):
        assert dataclasses.astuple(padded) == pytest.approx(dataclasses.astuple(plain), abs=1e-5)


def test_the_rows_decide_whether_heads_are_missed():
    random = np.random.default_rng(0)
    tokens = np.full(40, 10)
    whole = 20 + random.normal(0, 0.1, 40)
    found = [None] * 4  # of which only the number is asked

    def curves(least, most, apart=0.0):
        made = {}
        for name, rises in (("least missed first", least), ("most missed first", most)):
            noise = apart * random.normal(0, 10, 40)
            made[name] = [Losses(whole + rise * 10 + noise * (rise > 0), tokens) for rise in rises]
        return made

    few, many = (0, 0.01, 0.02, 1, 2), (0, 1, 1.5, 2, 2)
    assert [c.holds for c in heads.pruned(found, curves(few, many))] == [True, True]
    assert [c.holds for c in heads.pruned(found, curves(many, many))] == [False, False]
    unsure = heads.pruned(found, curves(few, (0, 0.02, 0.05, 1, 2), apart=0.3))
    assert [c.holds for c in unsure] == [None, None]
    losses = Losses(np.array([4.0, 2.0]), np.array([2, 2]))
    assert losses.mean == 1.5
    assert losses.resampled(np.array([[0, 0], [1, 1]])).tolist() == [2.0, 1.0]
