"""Windows of series: where targets lie, what the look-back may read, and that nothing is copied."""

from __future__ import annotations

import numpy as np
import pytest

from regard.data.shards import Shard
from regard.data.windows import WindowLoader, batch_of, join_splits
from regard.errors import UserError

L, H = 3, 2


def shard(*lengths, first=0, width=2):
    """A shard whose series count on from `first`, each number once in the first column."""
    total = sum(lengths)
    numbers = np.arange(first, first + total, dtype=np.float32)
    ids = np.stack([numbers] + [-numbers] * (width - 1), axis=1)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Shard(
        path=None,
        kind="records",
        ids=ids,
        offsets=offsets,
        vocab_size=width,
        records=len(lengths),
        tokens=total,
        symbols=0,
        bytes=0,
    )


def splits(train=(10,), valid=(4,), test=(5,)):
    """Three splits of series; a series is 100 i + step in its first column."""
    result, begun = {}, [0] * len(train)
    for name, lengths in (("train", train), ("valid", valid), ("test", test)):
        one = shard(*lengths)
        values = np.concatenate(
            [100 * i + begun[i] + np.arange(n) for i, n in enumerate(lengths)]
        ).astype(np.float32)
        one.ids[:, 0] = values
        begun = [a + b for a, b in zip(begun, lengths, strict=True)]
        result[name] = one
    return result


def test_targets_lie_in_their_split_and_the_look_back_may_read_the_split_before():
    windows = join_splits(splits(), L, H, 1)
    targets = {
        name: sorted({int(x) for x in one.read()[:, L:, 0].ravel()})
        for name, one in windows.items()
    }
    assert targets == {
        "train": list(range(3, 10)),
        "valid": list(range(10, 14)),
        "test": list(range(14, 19)),
    }
    assert windows["valid"].record(0)[:, 0].tolist() == [7, 8, 9, 10, 11]
    assert windows["test"].records == 5 - H + 1


def test_no_window_crosses_from_one_series_into_another():
    windows = join_splits(splits((10, 8), (4, 3), (5, 4)), L, H, 1)
    for one in windows.values():
        values = one.read()[..., 0]
        assert (np.diff(values, axis=1) == 1).all()
        assert ((values // 100) == one.series[:, None]).all()


def test_windows_are_places_in_one_array():
    windows = join_splits(splits(), L, H, 1)
    assert windows["train"].ids is windows["test"].ids
    part = windows["train"].take(np.array([2, 0]))
    assert part.ids is windows["train"].ids and part.starts.tolist() == [2, 0]
    assert (part.records, part.symbols, part.tokens) == (2, 2, 2 * (L + H))


def test_windows_without_an_observed_target_or_past_are_left_out():
    parts = splits()
    parts["train"].ids[5:9] = np.nan
    windows = join_splits(parts, L, H, 2)["train"]
    kept = windows.read()
    assert all(not np.isnan(one[:L]).all() and not np.isnan(one[L:]).all() for one in kept)
    # windows 2 to 4 have no target, and window 5, whose targets are steps 8 and 9, has no past
    assert windows.starts.tolist() == [0, 1]


def test_too_little_data_is_an_error_that_names_what_to_lower():
    with pytest.raises(UserError, match=r"at most 10 steps.*--lookback or --horizon"):
        join_splits(splits(), 9, 2, 1)


def test_every_epoch_has_each_window_once_and_depends_on_the_seed_only():
    windows = join_splits(splits((40,)), L, H, 1)["train"]
    loader = WindowLoader(windows, batch_tokens=6 * (L + H), seed=3, micro_tokens=4 * (L + H))
    assert [len(batch.ids) for batch in loader.step(0)] == [4, 2]
    starts = np.concatenate(
        [batch.ids[:, 0].numpy() for n in range(windows.records // 6) for batch in loader.step(n)]
    )
    assert sorted(starts.tolist()) == windows.starts.tolist()
    again = WindowLoader(windows, batch_tokens=6 * (L + H), seed=3)
    assert again.step(4)[0].ids[:, 0].tolist() == starts[24:30].tolist()
    both = [loader.step(2, rank, 2)[0].ids[:, 0].tolist() for rank in range(2)]
    assert sorted([*both[0], *both[1]]) == sorted(starts[12:18].tolist())
    assert loader.records_of(2) == sorted(np.searchsorted(windows.starts, starts[12:18]).tolist())


def test_a_batch_has_places_and_no_values():
    windows = join_splits(splits(), L, H, 1)["valid"]
    batch = batch_of(windows)
    assert batch.ids[:, 0].tolist() == windows.starts.tolist()
    assert batch.symbols == batch.tokens == windows.records
