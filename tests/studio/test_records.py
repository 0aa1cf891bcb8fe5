"""Held-out records one by one: of texts, of parts of running text, of pairs, of other items."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from regard.errors import UserError
from regard.evaluation.eval_data import shard_of
from regard.studio import records
from regard.studio.records import HeldOut
from regard.tasks import LookRequest
from regard.tasks.prediction import choose_item
from regard.tokenizers import Characters

TOKENIZER = Characters.train(["abcdef"])


def held_out(shard, task="next", **attributes):
    run = SimpleNamespace(description=SimpleNamespace(task=task))
    options = {"tokenizer": TOKENIZER, "source_tokenizer": TOKENIZER, "run": run} | attributes
    return HeldOut(SimpleNamespace(held_out=lambda: ("test", shard), **options))


def test_records_are_their_texts():
    part = held_out(shard_of(["abc", "de"], TOKENIZER))
    assert (part.count, part.split) == (2, "test")
    assert [part.text(i) for i in range(2)] == [("abc", ""), ("de", "")]
    with pytest.raises(UserError, match="number must be from 0 to 1, got 2"):
        part.text(2)


def test_running_text_is_cut_into_parts(monkeypatch):
    monkeypatch.setattr(records, "PART", 4)
    part = held_out(shard_of(["abcdefab", "fed"], TOKENIZER, kind="text"))
    assert [part.text(i)[0] for i in range(part.count)] == ["abcd", "efab", "fed"]


def test_pairs_have_a_source_and_a_target():
    shard = shard_of(["abc"], TOKENIZER).paired(shard_of(["fed"], TOKENIZER))
    assert held_out(shard).text(0) == ("fed", "abc")


def test_a_run_without_data_has_no_records():
    def refuse():
        raise UserError("no data")

    part = HeldOut(SimpleNamespace(held_out=refuse, run="RUN", tokenizer=TOKENIZER))
    assert (part.count, part.split) == (0, "")
    with pytest.raises(UserError, match="RUN holds no held-out data"):
        part.text(0)


def test_only_tasks_with_pages_about_records_have_them():
    shard = shard_of(["abc"], TOKENIZER)
    assert held_out(shard, "label").has_pages
    assert not held_out(shard, "forecast").has_pages


def test_a_page_is_about_the_record_that_is_asked_for():
    class Items:
        reads_text = False
        words = ("image", "images")

        def decode_record(self, record):
            return record[1:-1]

    shard = shard_of(["abc", "de"], TOKENIZER)
    predictor = SimpleNamespace(tokenizer=Items())
    item, title = choose_item(predictor, "", ("test", shard), LookRequest(record=1))
    np.testing.assert_array_equal(item, TOKENIZER.encode("de"))
    assert title == "record 2 of the test split"
