"""What callers ask of any encoder, answered by text, images and point clouds."""

import numpy as np
import pytest

from regard.errors import UsageError
from regard.tokenizers import BPE, Characters, Kmers, Patches, Points, Words
from regard.tokenizers.points import PointCloud

RANDOM = np.random.default_rng(3)
IMAGES = [RANDOM.integers(0, 256, (9, 7, 3), dtype=np.uint8) for _ in range(3)]
CLOUDS = [
    PointCloud(
        RANDOM.normal(size=(n, 3)).astype(np.float32),
        RANDOM.normal(size=(n, 1)).astype(np.float32),
        RANDOM.choice([1, 6], n).astype(np.uint8),
    )
    for n in (5, 11, 8)
]
CHARACTERS = Characters.train(["to be or not"])
PATCHES = Patches.train(IMAGES, patch=4)
POINTS = Points.train(CLOUDS, neighbours=3)
SAMPLED = Points.train(CLOUDS, samples=4, neighbours=3)
FEATURIZERS = pytest.mark.parametrize("featurizer", [PATCHES, POINTS, SAMPLED])


def record_of(tokenizer, text):
    return np.array([tokenizer.start, *tokenizer.encode(text), tokenizer.end])


def test_only_text_is_cut_and_its_limit_leaves_room_for_the_markers():
    assert CHARACTERS.markers == (1, 1) and CHARACTERS.content_limit(10) == 8
    for featurizer in (PATCHES, POINTS):
        assert featurizer.markers == (1, 0) and featurizer.content_limit(10) is None


def test_items_have_a_word_for_one_and_for_several():
    assert [e.words[1] for e in (CHARACTERS, PATCHES, POINTS)] == [
        "texts",
        "images",
        "point clouds",
    ]


def test_only_text_comes_through_a_pipe():
    CHARACTERS.check_pipe()
    with pytest.raises(UsageError, match="a file or a folder of images; they are not read from"):
        PATCHES.check_pipe()
    with pytest.raises(UsageError, match="point clouds"):
        POINTS.check_pipe()


def test_the_markers_are_what_a_record_has_around_its_item():
    record = record_of(CHARACTERS, "not to be")
    before, after = CHARACTERS.markers
    assert CHARACTERS.decode(record[before : len(record) - after]) == "not to be"
    assert CHARACTERS.content(record).tolist() == record[1:-1].tolist()
    ids = POINTS.encode(CLOUDS[0])
    assert len(ids) - sum(POINTS.markers) == len(CLOUDS[0]) and POINTS.content(ids) is ids


@FEATURIZERS
def test_a_stored_record_is_decoded_to_an_item_that_encodes_to_it(featurizer):
    items = IMAGES if featurizer is PATCHES else CLOUDS
    for item in items:
        record = featurizer.encode(item)
        np.testing.assert_array_equal(featurizer.encode(featurizer.decode_record(record)), record)
    assert CHARACTERS.decode_record(record_of(CHARACTERS, "be or")) == "be or"


@FEATURIZERS
def test_items_come_back_and_a_spoiled_record_does_not(featurizer):
    items = IMAGES if featurizer is PATCHES else CLOUDS
    assert all(map(featurizer.round_trip, items))
    record = featurizer.encode(items[0])
    assert featurizer.record_round_trip(record)
    spoiled = record.copy()
    spoiled[0] = 1  # `<S>` is zeros
    assert not featurizer.record_round_trip(spoiled)


def test_a_neighbor_that_is_not_its_center_spoils_a_record():
    for featurizer in (POINTS, SAMPLED):
        record = featurizer.encode(CLOUDS[1])
        record[2, featurizer.dimensions + 1] += 0.5  # the first coordinate of the first neighbor
        assert not featurizer.record_round_trip(record)


def test_texts_come_back_unless_something_in_them_is_unknown():
    for tokenizer in (CHARACTERS, Words.train(["to be or not"]), BPE.train(["to be or not"])):
        assert tokenizer.round_trip("not to be") and tokenizer.round_trip("ö")
        assert tokenizer.record_round_trip(record_of(tokenizer, "or not"))
    assert Kmers.train(["ACGT"]).round_trip("acgtn")  # up to what it normalizes
    backwards = Characters(["a", "b"])
    backwards.decode = lambda ids: "".join(chr(93 + i) for i in reversed(ids))
    assert backwards.round_trip("aa") and not backwards.round_trip("ab")


@FEATURIZERS
def test_made_up_records_are_tokens_of_made_up_items_of_different_sizes(featurizer):
    items = featurizer.sample_items(4)
    records = featurizer.sample_records([2, 5, 8, 9])
    assert len({len(record) for record in records}) > 1
    for item, record in zip(items, records, strict=True):
        np.testing.assert_array_equal(featurizer.encode(item), record)
        assert featurizer.reads(item) and featurizer.round_trip(item)
    again = featurizer.sample_records([2, 5, 8, 9])
    assert all(map(np.array_equal, records, again))


def test_made_up_records_of_text_have_markers_and_the_lengths_asked_for():
    records = CHARACTERS.sample_records([2, 5, 9])
    assert [len(record) for record in records] == [2, 5, 9]
    assert all(r[0] == CHARACTERS.start and r[-1] == CHARACTERS.end for r in records)
    assert all(r.min() >= 0 and r.max() < CHARACTERS.vocab_size for r in records)


def test_only_point_clouds_have_parts_in_any_order():
    assert CHARACTERS.permuted_items(3, RANDOM) == PATCHES.permuted_items(3, RANDOM) == []
    for cloud, other, order in POINTS.permuted_items(3, np.random.default_rng(8)):
        np.testing.assert_array_equal(cloud.points[order], other.points)
        np.testing.assert_array_equal(cloud.atoms[order], other.atoms)
        np.testing.assert_array_equal(POINTS.encode(cloud)[1:][order], POINTS.encode(other)[1:])


def test_only_overlapping_words_cannot_be_cut_by_the_library():
    assert Kmers.train(["ACGT"], k=3, stride=1).export_warnings
    assert not Kmers.train(["ACGT"], k=3).export_warnings and not CHARACTERS.export_warnings


def test_models_learn_their_input_shape_from_featurizers_only():
    assert CHARACTERS.model_config == {}
    assert PATCHES.model_config["rows"] == 3 and PATCHES.model_config["patch"] == 4
    assert POINTS.model_config["elements"] == (1, 6)
