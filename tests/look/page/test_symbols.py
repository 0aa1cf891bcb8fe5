"""Components about tokens: distributions, beam trees and tags against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.look.page import BeamTree, Distribution, Surprise, Tagged


def node(id, parent, score, *, step, kept=True, finished=False, token="a"):
    return {
        "id": id,
        "parent": parent,
        "token": token,
        "score": score,
        "kept": kept,
        "finished": finished,
        "step": step,
    }


def naive_cut(logits, temperature, top_k, top_p):
    """The three cuts, one symbol at a time."""
    weights = [math.exp(x / temperature) for x in logits]
    tempered = [w / sum(weights) for w in weights]
    order = sorted(range(len(logits)), key=lambda i: (-tempered[i], i))[: top_k or None]
    mass = sum(tempered[i] for i in order)
    kept, total = [], 0.0
    for i in order:
        if top_p < 1 and total >= top_p:
            break
        kept.append(i)
        total += tempered[i] / mass
    share = sum(tempered[i] for i in kept)
    return tempered, [tempered[i] / share if i in kept else 0.0 for i in range(len(logits))]


@given(
    st.lists(st.integers(-24, 24).map(lambda i: i / 4), min_size=1, max_size=9),
    st.sampled_from([0.3, 1.0, 2.5]),
    st.integers(0, 9),
    st.sampled_from([0.05, 0.37, 0.81, 1.0]),
)
def test_cuts_agree_with_taking_symbols_one_by_one(logits, temperature, top_k, top_p):
    top_k = min(top_k, len(logits))
    names = [str(i) for i in range(len(logits))]
    shown = Distribution(names, logits, temperature=temperature, top_k=top_k, top_p=top_p).cut()
    for ours, naive in zip(shown, naive_cut(logits, temperature, top_k, top_p), strict=True):
        np.testing.assert_allclose(ours, naive, atol=1e-9)


def test_probabilities_and_their_logarithms_are_the_same_distribution():
    probabilities = [0.5, 0.3, 0.2, 0.0]
    from_logits = Distribution(
        list("abcd"), [math.log(p) if p else -math.inf for p in probabilities]
    )
    from_probabilities = Distribution(list("abcd"), probabilities=probabilities)
    assert from_logits.data() == from_probabilities.data()
    np.testing.assert_allclose(from_probabilities.cut()[1], probabilities)


def test_the_best_beam_is_the_best_finished_one():
    nodes = [
        node(0, None, 0.0, step=0),
        node(1, 0, -1.0, step=1),
        node(2, 0, -0.5, step=1, kept=False, finished=True),
        node(3, 1, -1.5, step=2),
        node(4, 1, -2.0, step=2, finished=True),
    ]
    assert BeamTree(nodes).best_path() == [0, 1, 4]
    assert BeamTree(nodes[:4]).best_path() == [0, 1, 3]
    assert BeamTree(nodes, best=3).best_path() == [0, 1, 3]


def test_tags_are_numbered_by_how_often_they_occur():
    tagged = Tagged(list("abcde"), ["x", "y", None, "z", "y"], {"y": "twice"})
    data = tagged.data()
    assert data["names"] == ["y", "x", "z"] and data["notes"] == ["twice", "", ""]
    assert data["tags"] == [1, 0, -1, 2, 0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Tagged(["a", "b"], ["x"]), "tags must have one entry per token"),
        (lambda: Surprise(["a"], [("m", [1, 2])]), "bits of 'm' must have one entry per token"),
        (lambda: Surprise(["a"], [("m", [-1])]), "bits of 'm' must not be negative, got -1.0"),
        (lambda: Surprise(["a"], []), "rows must hold at least one"),
        (lambda: Distribution(["a"]), "either logits or probabilities"),
        (lambda: Distribution(["a"], [1.0], top_p=0), r"top_p must be in \(0, 1\], got 0"),
        (lambda: Distribution(["a"], [1.0], top_k=2), r"top_k must be in 0..1, got 2"),
        (lambda: Distribution(["a"], [1.0], temperature=0), "temperature must be positive, got 0"),
        (lambda: Distribution(["a"], [math.nan]), "logits must be numbers"),
        (lambda: Distribution(["a"], probabilities=[0.0]), "probabilities must be finite"),
        (lambda: BeamTree([{"id": 0}]), "a node must have the keys"),
        (lambda: BeamTree([node(0, None, 0.0, step=0)] * 2), "node ids must differ, got 0 twice"),
        (
            lambda: BeamTree([node(0, 7, 0.0, step=0)]),
            "node 0: parent must be a node of an earlier",
        ),
        (
            lambda: BeamTree([node(0, None, 0.0, step=0)], best=3),
            "best must be the id of a node, got 3",
        ),
    ],
)
def test_wrong_data_is_refused_with_its_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()
