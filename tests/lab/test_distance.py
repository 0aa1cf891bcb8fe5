"""`lab distance`: the claims for real in the quick form, and each part against an oracle."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from regard.lab import distance as lab
from regard.lab.distance import (
    CONVOLUTION,
    FULL,
    HIDDEN,
    HYENA,
    MARKOV,
    MATRIX,
    READERS,
    RECURRENT,
    SEES,
    VOCABULARY,
    WINDOW,
    WINDOWED,
    HiddenReader,
    Lessons,
    MotifReader,
    NeuralReader,
    claims,
    draw,
    length_of,
)
from regard.lab.mini_trainer import practise
from regard.lab.result import Options, Share
from regard.models.parameter_matching import parameters
from regard.registry import family


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Models this small are slower on several threads than on one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def quick():
    """The quick form, as a user runs it."""
    return lab.distance(Options(quick=True, seed=1))


def accuracies(result):
    first = result.tables[0]
    return {row[0]: [float(cell.split()[0]) / 100 for cell in row[1:]] for row in first.rows}


@pytest.mark.slow
def test_attention_relates_what_counting_and_convolution_cannot(quick):
    found = accuracies(quick)
    assert found[FULL][-1] > 0.9
    for name in (MATRIX, MARKOV, CONVOLUTION):
        assert abs(found[name][-1] - 0.5) < 0.06
    assert found[MARKOV][0] > 0.95 and found[CONVOLUTION][1] > 0.95  # each within its reach
    assert abs(found[MARKOV][1] - 0.5) < 0.06


@pytest.mark.slow
def test_every_claim_of_the_quick_form_holds(quick):
    assert len(quick.claims) == 7
    assert [claim.name for claim in quick.claims if not claim.holds] == []


def pooled_of(values, of=1000):
    return {
        name: {d: Share(round(of * v), of) for d, v in zip((2, 8, 32, 128, 512), row, strict=True)}
        for name, row in values.items()
    }


AS_SAID = {
    MATRIX: [0.5] * 5,
    MARKOV: [1, 0.5, 0.5, 0.5, 0.5],
    HIDDEN: [1, 0.5, 0.5, 0.5, 0.5],
    CONVOLUTION: [1, 1, 0.5, 0.5, 0.5],
    RECURRENT: [1, 1, 0.9, 0.8, 0.7],
    WINDOWED: [1, 1, 1, 0.5, 0.5],
    FULL: [1] * 5,
}


def test_all_claims_hold_of_figures_as_they_say():
    found = claims(pooled_of(AS_SAID), {CONVOLUTION: 100, FULL: 109})
    assert len(found) == 11 and all(claim.holds for claim in found)


@pytest.mark.parametrize(
    ("model", "row", "name"),
    [
        (MATRIX, [0.6, 0.5, 0.5, 0.5, 0.5], "a weight matrix relates nothing"),
        (MATRIX, [0.4, 0.5, 0.5, 0.5, 0.5], "a weight matrix relates nothing"),
        (MARKOV, [0.9, 0.5, 0.5, 0.5, 0.5], "a Markov motif relates letters within its order"),
        (MARKOV, [1, 0.9, 0.5, 0.5, 0.5], "a Markov motif is blind beyond its order"),
        (HIDDEN, [1, 1, 0.5, 0.5, 0.5], "a hidden Markov model does not carry a motif along"),
        (CONVOLUTION, [1, 0.9, 0.5, 0.5, 0.5], "a convolution relates what it sees"),
        (CONVOLUTION, [1, 1, 1, 0.5, 0.5], "a convolution is blind beyond its receptive field"),
        (RECURRENT, [1, 1, 1, 1, 0.96], "the LSTM's accuracy falls with distance"),
        (WINDOWED, [1, 1, 0.9, 0.5, 0.5], "windowed attention relates what it sees"),
        (WINDOWED, [1, 1, 1, 0.9, 0.5], "windowed attention is blind beyond layers × window"),
        (FULL, [1, 1, 1, 1, 0.9], "full attention relates motifs at every distance"),
    ],
)
def test_a_claim_fails_alone_where_its_figure_does(model, row, name):
    found = claims(pooled_of(AS_SAID | {model: row}), {CONVOLUTION: 100, FULL: 109})
    assert [claim.name for claim in found if not claim.holds] == [name]


def test_models_of_other_sizes_are_told():
    found = claims(pooled_of(AS_SAID), {CONVOLUTION: 100, FULL: 111})
    assert [claim.name for claim in found if not claim.holds] == [
        "the neural models are of one size"
    ]


def test_neural_models_have_one_size_at_full_length():
    sizes = lab.neural_sizes(lab.LARGE)
    assert set(sizes) == {CONVOLUTION, RECURRENT, HYENA, WINDOWED, FULL}
    assert max(sizes.values()) <= 1.1 * min(sizes.values())
    reader = READERS[RECURRENT]
    assert sizes[RECURRENT] == parameters("lstm", VOCABULARY, reader.config(lab.LARGE.lessons))


@pytest.mark.parametrize(
    ("name", "sees"),
    [
        (CONVOLUTION, SEES),
        (WINDOWED, 2 * (WINDOW - 1) + 1),
        (RECURRENT, None),
        (HYENA, None),
        (FULL, None),
    ],
)
def test_the_answer_depends_on_as_many_letters_as_is_said(name, sees):
    lessons = Lessons(distances=(128,), steps=1, parameters=60_000)
    reader = READERS[name]
    torch.manual_seed(0)
    model = family(reader.family)(VOCABULARY, reader.config(lessons)).eval()
    ids = torch.from_numpy(draw(128, 2, np.random.default_rng(0)).ids)
    held = {}
    model.embedding.register_forward_hook(lambda m, i, o: held.update(x=o) or o.retain_grad())
    model.head(model(ids)[:, -1]).pow(2).sum().backward()
    moved = held["x"].grad.abs().sum((0, 2))  # (T,)
    farthest = ids.size(1) - int(torch.nonzero(moved)[0])
    assert farthest == (ids.size(1) if sees is None else sees)


def test_lessons_begin_near_and_end_with_every_distance_in_turn():
    lessons = Lessons(distances=(2, 8, 32), steps=60, batch=4)
    met = [lessons.at(step) for step in range(60)]
    assert set(met[:12]) == {2} and set(met[-12:]) == {2, 8, 32}
    assert met.index(8) < met.index(32)
    assert {d: met[-24:].count(d) for d in (2, 8, 32)} == {2: 8, 8: 8, 32: 8}
    assert lessons.letters == 4 * sum(length_of(d) for d in met)


def test_motif_and_hidden_models_relate_neighbours():
    lessons = Lessons(distances=(2, 9), steps=0, examples=400, passes=25)
    told = []
    for reader, sees in ((MotifReader(0), False), (MotifReader(2), True), (HiddenReader(8), True)):
        judge = reader.learn(lessons, 0, told.append)
        pairs = draw(2, 400, np.random.default_rng(5))
        assert ((judge(pairs, 2) == pairs.labels).mean() > 0.8) == sees
        pairs = draw(9, 400, np.random.default_rng(6))
        assert abs((judge(pairs, 9) == pairs.labels).mean() - 0.5) < 0.12
    assert 0 < sum(told) <= HiddenReader(8).cost(lessons) * 1.2


def test_practice_depends_on_its_seed_alone_and_disturbs_nobody():
    lessons = Lessons(distances=(2,), steps=3, batch=4, parameters=8_000)
    reader = NeuralReader("transformer")

    def weights(seed):
        model = practise(
            "transformer",
            VOCABULARY,
            reader.config(lessons),
            dataclasses.replace(lessons.recipe, seed=seed),
            lambda step: draw(2, 4, np.random.default_rng(step)).batch(),
        )
        assert not model.training
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    torch.manual_seed(9)
    expected = torch.rand(3)
    torch.manual_seed(9)
    first = weights(0)
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(weights(0), first) and not torch.equal(weights(1), first)
