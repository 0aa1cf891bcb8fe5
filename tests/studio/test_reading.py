"""What all readers share: results that are kept, and where tokens are in a text."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from regard.studio.reading import RecentResults, Tokens, title_of
from regard.tokenizers import Characters

TOKENIZER = Characters.train(["abba", "cab"])


def test_tokens_are_found_by_their_place_in_the_text():
    tokens = Tokens.of("abba", [*TOKENIZER.encode("abba"), TOKENIZER.end], TOKENIZER)
    assert tokens.within(0, 4) == (0, 5)  # <E> belongs to the last part
    assert tokens.within(1, 3) == (1, 3)
    assert Tokens.of("", [TOKENIZER.end], TOKENIZER).within(0, 0) == (0, 1)


def test_layers_are_numbered_from_one():
    assert title_of("block.0.attention") == "layer 1"
    assert title_of("block.2.cross") == "layer 3, to the source"


def test_only_the_last_results_are_kept():
    results, made = RecentResults(2), []
    for key in (1, 2, 1, 3, 1, 2):
        results.get(key, lambda key=key: made.append(key) or key)
    assert made == [1, 2, 3, 2]  # 2 was the oldest when 3 came


def test_what_fails_is_tried_again_and_what_is_asked_for_twice_is_made_once():
    results, made, begun, go_on = RecentResults(2), [], threading.Event(), threading.Event()
    with pytest.raises(ZeroDivisionError):
        results.get(1, lambda: 1 // 0)
    assert results.get(1, lambda: 5) == 5

    def make():
        made.append(1)
        begun.set()
        go_on.wait(10)
        return 7

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(results.get, 2, make)
        begun.wait(10)
        second = pool.submit(results.get, 2, make)
        go_on.set()
        assert (first.result(), second.result(), made) == (7, 7, [1])
