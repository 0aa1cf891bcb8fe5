"""Near copies: found as a comparison of all with all finds them, in bounded time."""

import random

import pytest

from regard.data import leakage as module
from regard.data.leakage import NEAR, near_duplicates, word_length


def sets(text, k):
    return {text[i : i + k] for i in range(max(1, len(text) - k + 1))}


def brute(train, other, k):
    """Records of `other` near one of `train`, by sets of strings."""
    found = []
    for text in dict.fromkeys(other):
        if text in train:
            continue
        own = sets(text, k)
        for known in train:
            theirs = sets(known, k)
            if len(own & theirs) >= NEAR * len(own | theirs):
                found.append(text)
                break
    return found


def changed(text, times, rng, letters):
    text = list(text)
    for i in rng.sample(range(len(text)), times):
        text[i] = rng.choice(letters)
    return "".join(text)


@pytest.mark.parametrize(("letters", "k"), [("ACGT", 8), ("ACDEFGHIKLMNPQRSTVWY", 5)])
def test_what_is_found_is_what_comparing_all_finds(letters, k):
    rng = random.Random(3)
    train = ["".join(rng.choices(letters, k=rng.randint(60, 160))) for _ in range(150)]
    other = ["".join(rng.choices(letters, k=90)) for _ in range(30)]
    other += [changed(text, times, rng, letters) for text in train[:40] for times in (1, 2, 5, 12)]
    other += train[:7]
    assert word_length(train) == k
    expected = brute(train, other, k)
    found = near_duplicates(train, other)
    assert 30 < len(expected) < len(other) - 60  # some are near, some are not
    assert found.records == len(expected)
    assert (found.compared, found.training) == (len(set(other)), 150)
    for one, two in found.examples:
        a, b = sets(one, k), sets(two, k)
        assert len(a & b) >= NEAR * len(a | b) and one != two


def test_texts_shorter_than_a_word_are_wholes():
    assert near_duplicates(["ab", "xyz"], ["ab", "abc", "q"]).records == 0
    found = near_duplicates(
        ["the same sentence, almost word for word"], ["the same sentence, almost word for word."]
    )
    assert found.records == 1
    assert near_duplicates([], ["a"]).records == near_duplicates(["a"], []).records == 0
    assert (
        near_duplicates(["grün wie das Gras 😀 im Mai"], ["grün wie das Gras 😀 im Mai!"]).records
        == 1
    )


def test_the_budget_is_kept_and_said(monkeypatch):
    monkeypatch.setattr(module, "BUDGET", 2000)
    texts = [f"{i:050d}" for i in range(100)]
    found = near_duplicates(texts, texts[:10])
    assert (found.training, found.compared) == (40, 10)


def test_many_alike_do_not_take_the_square_of_their_number():
    rng = random.Random(1)
    base = "".join(rng.choices("ACDEFGHIKL", k=200))
    alike = list({changed(base, 2, rng, "ACDEFGHIKL") for _ in range(3000)})
    calls = 0
    true = module._jaccard

    def counted(one, two):
        nonlocal calls
        calls += 1
        return true(one, two)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_jaccard", counted)
        found = near_duplicates(alike[:2500], alike[2500:])
    assert found.records == found.compared == len(alike) - 2500
    assert calls <= 4 * found.compared
