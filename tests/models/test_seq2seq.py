"""Several translators as one, against the mean of their probabilities written out."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from regard.api import load, train_recipe
from regard.decoding import Beam, ForbiddenTransitions, Greedy
from regard.decoding.engine import translate
from regard.errors import UserError
from regard.layers.embeddings import Inputs
from regard.models.encoder_decoder import EncoderDecoder, modern
from regard.models.language_model import IGNORE
from regard.models.recurrent import AttentiveSeq2Seq, bahdanau
from regard.models.seq2seq import Ensemble
from regard.planning import plan_recipe
from regard.tasks import seq2seq

V, START, END = 7, 1, 2


def sure(model):
    """Not all words alike, and not the same for all sources."""
    with torch.no_grad():
        model.head.weight *= 6
    return model.double().eval()


@pytest.fixture(scope="module")
def members():
    found = []
    for seed in range(2):
        torch.manual_seed(seed)
        config = dataclasses.replace(modern(2, 16), dropout=0.0, tied=False, max_len=9 + seed)
        found.append(sure(EncoderDecoder(V, config)))
    torch.manual_seed(2)
    config = dataclasses.replace(bahdanau(1, 16), dropout=0.0, max_len=12)
    return [*found, sure(AttentiveSeq2Seq(V, config))]


@pytest.fixture(scope="module")
def source():
    ids = torch.tensor([[3, 4, 5, END], [6, END, 0, 0], [5, 5, END, 0]])
    return Inputs(ids, (ids > 0).long())


@torch.no_grad()
def test_the_next_word_has_the_mean_of_the_probabilities(members, source):
    together = Ensemble(members).eval()
    assert together.config.max_len == 9  # all of them have learned of so many
    ids = torch.tensor([[START, 3, 4, 6], [START, 5, 5, 3], [START, 6, 3, 3]])
    each = [np.exp(m.condition(source).logits(ids).log_softmax(-1).numpy()) for m in members]
    expected = np.log(np.mean(each, axis=0))
    given = together.condition(source)
    assert np.abs(given.logits(ids).numpy() - expected).max() < 1e-12
    targets = torch.tensor([[3, 4, 6, END], [5, 5, 3, IGNORE], [6, 3, 3, 4]])
    found = given.score(ids, targets).numpy()
    for (row, place), target in np.ndenumerate(targets.numpy()):
        wanted = 0.0 if target == IGNORE else expected[row, place, target]
        assert abs(found[row, place] - wanted) < 1e-5
    state = given.init_state(3, 8)
    steps = [given.step(ids[:, t : t + 1], None, state).numpy() for t in range(4)]
    assert np.abs(np.stack(steps, 1) - expected).max() < 1e-10
    assert state.length == 4


@torch.no_grad()
def test_what_is_forbidden_is_shared_out_among_the_rest(members, source):
    given = Ensemble(members).eval().condition(source)
    forbidden = ForbiddenTransitions.from_pairs([(3, 4), (3, 5), (START, END)], V)
    ids = torch.tensor([[START, 3, 4], [START, 3, 3], [START, 6, 3]])
    targets = torch.tensor([[3, 6, 5], [6, 4, IGNORE], [5, 3, 3]])
    logits = given.logits(ids).flatten(0, 1)
    logs = forbidden(logits, ids.flatten()).log_softmax(-1).view(3, 3, V)
    expected = logs.gather(2, targets.clamp_min(0)[..., None])[..., 0]
    expected[targets == IGNORE] = 0
    found = given.score(ids, targets, constrain=forbidden)
    assert found[1, 1] == expected[1, 1] == -torch.inf
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=0)


@torch.no_grad()
def test_a_wide_beam_finds_what_is_most_probable_for_all(members):
    longest, words = 3, [w for w in range(V) if w not in (0, START, END)]
    together, asked = Ensemble(members).eval(), [[3, 4, 5, END], [6, END], [5, 5, 6, 4, END]]
    beam = Beam(width=V**2, length_penalty=0.0)
    options = {"start": START, "end": END, "max_new": longest, "banned": (0, START)}
    found = translate(together, asked, beam, **options)
    alone = [[one.ids for (one,) in translate(m, asked, beam, **options)] for m in members]
    for source, (best,) in zip(asked, found, strict=True):
        ids = torch.tensor([source])
        given = together.condition(Inputs(ids, torch.ones_like(ids)))
        ruled_out = ForbiddenTransitions.from_pairs(
            [(a, b) for a in range(V) for b in (0, START)], V
        )
        tried = []
        for n in range(longest):
            for body in itertools.product(words, repeat=n):
                pair = torch.tensor([[START, *body]]), torch.tensor([[*body, END]])
                cost = float(given.score(*pair, constrain=ruled_out).sum())
                tried.append((cost, [*body, END]))
        log, ids = max(tried)
        assert best.ids == ids and abs(sum(best.log_probs) - log) < 1e-5
    assert len({str(one) for one in alone}) > 1  # they do not agree, and must
    again = translate(together, asked[:1] * 3, Greedy(), **options)  # in the memory of before
    assert len({str(one) for one in again}) == 1


@torch.no_grad()
def test_one_that_is_asked_twice_says_the_same(members, source):
    one, twice = members[0].condition(source), Ensemble([members[0]] * 2).eval().condition(source)
    ids = torch.tensor([[START, 3], [START, 5], [START, 6]])
    expected = one.logits(ids).log_softmax(-1)
    torch.testing.assert_close(twice.logits(ids), expected, atol=1e-12, rtol=0)


def test_all_have_the_same_words():
    config = dataclasses.replace(modern(1, 16), max_len=8)
    with pytest.raises(ValueError, match=r"one vocabulary, got sizes \[7, 8\]"):
        Ensemble([EncoderDecoder(size, config) for size in (7, 8)])
    with pytest.raises(ValueError, match="members must be translators"):
        Ensemble([])


def test_runs_translate_together(tmp_path, monkeypatch, capsys):
    import json

    import regard.cli

    monkeypatch.setattr(seq2seq, "MAX_TRANSLATED", 4)
    words = ["abc", "bcd", "cab", "dab", "bad", "cad", "acd", "dcb", "abd", "bca"] * 4
    (tmp_path / "x.there").write_text("".join(f"{w}\n" for w in words))
    (tmp_path / "x.back").write_text("".join(f"{w[::-1]}\n" for w in words))
    files = [tmp_path / "x.there", tmp_path / "x.back"]
    small = ["model.n_layers=1", "model.d_model=16", "train.steps=4", "data.test_fraction=0.2"]
    small += ["task.name=target"]
    for seed in range(2):
        train_recipe(
            plan_recipe(files, assignments=[*small, f"train.seed={seed}"])[0], tmp_path / str(seed)
        )
    train_recipe(
        plan_recipe(files, assignments=[*small, "output.tokenizer=bytes"])[0], tmp_path / "other"
    )
    runs = tmp_path / "0", tmp_path / "1"
    pairs = [("abc", "cba"), ("dab", "bad")]
    each = [[r.log_probs for r in load(run).score(pairs)] for run in runs]
    both = load(*runs).score(pairs)
    for record, (one, other) in zip(both, zip(*each, strict=True), strict=True):
        expected = np.log((np.exp(one) + np.exp(other)) / 2)
        assert np.abs(np.array(record.log_probs) - expected).max() < 1e-5
    said = load(*runs).translate(["abc", "dab"], Beam(3))
    (tmp_path / "lines").write_text("abc\ndab\n")
    command = ["translate", str(runs[0]), str(tmp_path / "lines"), "--ensemble", str(runs[1])]
    capsys.readouterr()
    assert regard.cli.run([*command, "--beams", "3"]) in (0, None)
    assert capsys.readouterr().out.splitlines() == [one.text for (one,) in said]
    figures = []
    for more in ([], ["--ensemble", str(runs[1])]):
        assert regard.cli.run(["evaluate", str(runs[0]), "--json", *more]) in (0, None)
        document = json.loads(capsys.readouterr().out)
        assert document.get("ensemble", []) == more[1:]
        figures.append(document["metrics"]["nats_per_symbol"]["value"])
    assert figures[0] != figures[1]
    with pytest.raises(UserError, match=r"has another tokenizer\.json than"):
        load(runs[0], tmp_path / "other")
