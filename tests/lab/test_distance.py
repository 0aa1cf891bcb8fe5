"""`lab distance`: pairs of motifs, the claims in the quick form, and each model's field."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.batching import IGNORE
from regard.lab import distance as lab
from regard.lab.distance import (
    ASK,
    CNN_CONTEXT,
    CONVOLUTION,
    DIFFERENT,
    FULL,
    HIDDEN,
    HYENA,
    MARKOV,
    MATRIX,
    MODELS,
    RECURRENT,
    SAME,
    SLACK,
    START,
    VOCABULARY,
    WINDOW,
    WINDOWED,
    HiddenPair,
    Lessons,
    MotifPair,
    claims,
    draw,
    length_of,
)
from regard.lab.experiment import Accuracies, Options, Proportion
from regard.models import count_parameters
from regard.models.motifs import DNA

SIGMAS = 5.0  # a test of chance that fails once in a million


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Models this small are slower on several threads than on one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def quick():
    return lab.distance(Options(quick=True, seed=1))


@pytest.mark.slow
def test_attention_relates_what_counting_and_convolution_cannot(quick):
    accuracies = {
        row[0]: [float(cell.split()[0]) / 100 for cell in row[1:]] for row in quick.tables[0].rows
    }
    assert accuracies[FULL][-1] > 0.9
    for name in (MATRIX, MARKOV, CONVOLUTION):
        assert abs(accuracies[name][-1] - 0.5) < 0.06
    # each within its reach
    assert accuracies[MARKOV][0] > 0.95 and accuracies[CONVOLUTION][1] > 0.95
    assert abs(accuracies[MARKOV][1] - 0.5) < 0.06


@pytest.mark.slow
def test_every_claim_of_the_quick_form_holds(quick):
    assert len(quick.claims) == 7
    assert [claim.name for claim in quick.claims if not claim.holds] == []


def make_accuracies(values):
    distances = (2, 8, 32, 128, 512)
    rows = {
        name: {d: Proportion(round(1000 * v), 1000) for d, v in zip(distances, row, strict=True)}
        for name, row in values.items()
    }
    return Accuracies(rows, 0.5)


AS_CLAIMED = {
    MATRIX: [0.5] * 5,
    MARKOV: [1, 0.5, 0.5, 0.5, 0.5],
    HIDDEN: [1, 0.5, 0.5, 0.5, 0.5],
    CONVOLUTION: [1, 1, 0.5, 0.5, 0.5],
    RECURRENT: [1, 1, 0.9, 0.8, 0.7],
    WINDOWED: [1, 1, 1, 0.5, 0.5],
    FULL: [1] * 5,
}


def test_all_claims_hold_for_accuracies_as_claimed():
    decided = claims(make_accuracies(AS_CLAIMED), {CONVOLUTION: 100, FULL: 109})
    assert len(decided) == 11 and all(claim.holds for claim in decided)


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
def test_one_wrong_accuracy_makes_one_claim_fail(model, row, name):
    decided = claims(make_accuracies(AS_CLAIMED | {model: row}), {CONVOLUTION: 100, FULL: 109})
    assert [claim.name for claim in decided if not claim.holds] == [name]


def test_models_of_different_sizes_fail_a_claim():
    decided = claims(make_accuracies(AS_CLAIMED), {CONVOLUTION: 100, FULL: 111})
    assert [claim.name for claim in decided if not claim.holds] == [
        "the neural models are of one size"
    ]


def test_neural_models_have_one_size_at_full_length():
    sizes = lab.neural_sizes(lab.LARGE)
    assert set(sizes) == {CONVOLUTION, RECURRENT, HYENA, WINDOWED, FULL}
    assert max(sizes.values()) <= 1.1 * min(sizes.values())
    config = MODELS[RECURRENT].config(*lab.LARGE.lessons.model_size)
    assert sizes[RECURRENT] == count_parameters("lstm", VOCABULARY, config)


@pytest.mark.parametrize(
    ("name", "field"),
    [
        (CONVOLUTION, CNN_CONTEXT),
        (WINDOWED, 2 * (WINDOW - 1) + 1),
        (RECURRENT, None),
        (HYENA, None),
        (FULL, None),
    ],
)
def test_the_prediction_depends_on_the_letters_of_the_field_alone(name, field):
    lessons = Lessons(distances=(128,), steps=1, parameters=60_000)
    torch.manual_seed(0)
    model = MODELS[name].builder(*lessons.model_size)().eval()
    ids = torch.from_numpy(draw(128, 2, np.random.default_rng(0)).ids)
    embedded = []

    def record(module, args, output):
        output.retain_grad()
        embedded.append(output)

    model.embedding.register_forward_hook(record)
    model.head(model(ids)[:, -1]).pow(2).sum().backward()
    influence = embedded[0].grad.abs().sum((0, 2))  # (T,)
    farthest = ids.size(1) - int(torch.nonzero(influence)[0])
    assert farthest == (ids.size(1) if field is None else field)


def test_lessons_start_near_and_end_with_every_distance_in_turn():
    lessons = Lessons(distances=(2, 8, 32), steps=60, batch=4)
    distances = [lessons.distance_at(step) for step in range(60)]
    assert set(distances[:12]) == {2} and set(distances[-12:]) == {2, 8, 32}
    assert distances.index(8) < distances.index(32)
    assert {d: distances[-24:].count(d) for d in (2, 8, 32)} == {2: 8, 8: 8, 32: 8}
    assert lessons.letters == 4 * sum(length_of(d) for d in distances)


def test_motif_and_hidden_models_relate_neighbours():
    lessons = Lessons(distances=(2, 9), steps=0, examples=400, iterations=25)
    letters = []
    for model, able in ((MotifPair(0), False), (MotifPair(2), True), (HiddenPair(8), True)):
        classify = model.learn(lessons, 0, letters.append)
        pairs = draw(2, 400, np.random.default_rng(5))
        assert ((classify(pairs, 2) == pairs.labels).mean() > 0.8) == able
        pairs = draw(9, 400, np.random.default_rng(6))
        assert abs((classify(pairs, 9) == pairs.labels).mean() - 0.5) < 0.12
    assert 0 < sum(letters) <= HiddenPair(8).cost(lessons) * 1.2


def texts(letters):
    return ["".join(DNA.letters[i] for i in row) for row in letters]


@settings(max_examples=40, deadline=None)
@given(distance=st.integers(1, 70), n=st.integers(1, 40), seed=st.integers(0, 10**6))
def test_every_sequence_has_two_motifs_at_the_distance_and_the_label_compares_them(
    distance, n, seed
):
    pairs = draw(distance, n, np.random.default_rng(seed))
    pattern = rf"[AT]*(GGCC|CCGG)([AT]{{{distance - 1}}})(GGCC|CCGG)[AT]*"
    for text, start, label in zip(texts(pairs.letters), pairs.starts, pairs.labels, strict=True):
        match = re.fullmatch(pattern, text)
        assert match is not None and len(text) == length_of(distance)
        assert match.start(1) == start <= SLACK
        assert bool(label) == (match[1] == match[3])
    assert abs(2 * int(pairs.labels.sum()) - n) <= 1
    trimmed = [
        [re.sub("^[AT]*|[AT]*$", "", text) for text in texts(letters)]
        for letters in (pairs.letters, pairs.aligned)
    ]
    assert trimmed[0] == trimmed[1]


def test_neither_motif_alone_nor_any_letter_nor_the_composition_predicts_the_label():
    pairs = draw(6, 40_000, np.random.default_rng(3))
    same, letters = pairs.labels, pairs.letters
    spread = 2 / np.sqrt(len(same))  # of a difference of two shares of half the sequences, at most
    composition = np.stack([(letters == digit).sum(1) for digit in range(DNA.size)], axis=1)
    assert (composition[:, 1:3] == 4).all()  # C and G, in every sequence
    assert abs(composition[same, 0].mean() - composition[~same, 0].mean()) < SIGMAS * spread * 2.5
    for digits in (letters, pairs.aligned):
        for digit in range(DNA.size):
            gap = (digits[same] == digit).mean(0) - (digits[~same] == digit).mean(0)  # (L,)
            assert np.abs(gap).max() < SIGMAS * spread / 2
    first = pairs.aligned[:, 0] == DNA.letters.index("G")
    second = pairs.aligned[:, 4 + 6 - 1] == DNA.letters.index("G")
    for motif in (first, second):
        assert abs(motif[same].mean() - motif[~same].mean()) < SIGMAS * spread / 2
    assert ((first == second) == same).all()  # and both motifs determine it


def test_the_label_is_the_only_target_of_a_batch():
    pairs = draw(5, 7, np.random.default_rng(0))
    batch = pairs.batch()
    assert batch.ids.shape == (7, length_of(5) + 2) and batch.symbols == 7
    assert (batch.ids[:, 0] == START).all() and (batch.ids[:, -1] == ASK).all()
    assert (batch.targets[:, :-1] == IGNORE).all()
    expected = [SAME if label else DIFFERENT for label in pairs.labels]
    assert batch.targets[:, -1].tolist() == expected
    assert torch.equal(batch.ids[:, 1:-1], torch.from_numpy(pairs.letters))


def test_a_shard_has_the_sequences_of_one_label():
    pairs = draw(5, 9, np.random.default_rng(1))
    parts = [pairs.shard(label) for label in (False, True)]
    assert [part.records for part in parts] == [5, 4]
    for label, part in zip((False, True), parts, strict=True):
        rows = [part.record(i).tolist() for i in range(part.records)]
        assert rows == pairs.ids[pairs.labels == label].tolist()


def test_motifs_cannot_overlap():
    with pytest.raises(ValueError, match="distance and n must be 1 or more, got 0 and 3"):
        draw(0, 3, np.random.default_rng(0))
