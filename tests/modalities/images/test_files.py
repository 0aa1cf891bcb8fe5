"""Files of images with labels or captions: every layout gives the same records, damage is named."""

import gzip
import struct
import zipfile
import zlib

import numpy as np
import pytest
from PIL import Image as PIL

from regard.data import Roles
from regard.data.batching import TokenLoader, windows
from regard.data.corpus import prepare, reopen
from regard.data.labelled import ColumnSelection
from regard.data.sources import DataSource
from regard.data.table_columns import complete_data
from regard.errors import UsageError, UserError
from regard.modalities.images.files import (
    ImageFiles,
    holds_images,
    inspect_images,
    published_parts,
    read_idx,
    read_image,
    resize_image,
    unlabelled_images,
)
from regard.planning import plan_recipe
from regard.recipe import DataRecipe, build
from regard.registry import MODALITIES
from regard.tokenizers import Patches

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 5, 7), dtype=np.uint8)
LABELS = np.array([2, 0, 1, 0, 2, 1])
CAPTIONED = np.random.default_rng(0).integers(0, 256, (40, 8, 12, 3), dtype=np.uint8)
CAPTIONS = [f"image number {i} of {'many' if i % 3 else 'very many'}" for i in range(40)]
GROUPS = [str(i // 5) for i in range(40)]
LABELS_OF_IMAGES = Roles(input=True, labels=True)
CAPTIONS_OF_IMAGES = Roles(input=True, output=True)
COLOR_PATCHES = Patches.train(iter(CAPTIONED))


def idx(array, kind=8):
    """An IDX file, byte by byte: two zeros, type, dimensions, sizes, data."""
    head = bytes([0, 0, kind, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.tobytes()


def records(files, **columns):
    source = ImageFiles([*files], ColumnSelection(**columns), strict=True)
    chunks = list(source.examples())
    images = [image for chunk in chunks for image in chunk.texts]
    return source, images, [cells[0] for chunk in chunks for cells in chunk.targets]


def assert_same(read):
    _, images, labels = read
    assert labels == [str(y) for y in LABELS]
    assert all(np.array_equal(a[..., 0], b) for a, b in zip(images, IMAGES, strict=True))


def test_idx_with_a_file_of_labels(tmp_path):
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(idx(IMAGES)))
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(
        gzip.compress(idx(LABELS.astype(np.uint8)))
    )
    assert holds_images([path])
    assert_same(records([path]))
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx(IMAGES[:2]))
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(LABELS[:2].astype(np.uint8)))
    data = {"train": (str(path),), "target": str(tmp_path / "train-labels-idx1-ubyte.gz")}
    recipe = DataRecipe(test=(str(tmp_path / "t10k-images-idx3-ubyte"),), **data)
    sources = DataSource(recipe, LABELS_OF_IMAGES)
    test = [chunk for chunk in sources.chunks() if chunk.split == 2]  # with labels of their own
    assert [cells for chunk in test for cells in chunk.targets] == [("2",), ("0",)]


def test_arrays_with_a_file_of_labels_and_with_both_in_one(tmp_path):
    np.save(tmp_path / "x.npy", IMAGES)
    np.save(tmp_path / "y.npy", LABELS)
    assert_same(records([tmp_path / "x.npy"], targets=(str(tmp_path / "y.npy"),)))
    np.savez(tmp_path / "both.npz", images=IMAGES, kinds=LABELS)
    assert_same(records([tmp_path / "both.npz"]))
    np.savez(tmp_path / "three.npz", images=IMAGES, kinds=LABELS, other=LABELS[::-1])
    assert_same(records([tmp_path / "three.npz"], targets=("kinds",)))
    with pytest.raises(UsageError, match=r"which array is the labels\? --target"):
        records([tmp_path / "three.npz"])


def test_white_may_be_one_and_channels_may_come_first(tmp_path):
    colored = np.random.default_rng(1).integers(0, 256, (3, 3, 5, 7), dtype=np.uint8)
    np.savez(tmp_path / "first.npz", x=colored / np.float32(255), y=LABELS[:3])
    _, images, _ = records([tmp_path / "first.npz"])
    assert all(
        np.array_equal(a, b.transpose(1, 2, 0)) for a, b in zip(images, colored, strict=True)
    )


def test_folders_of_classes_and_tables_of_paths(tmp_path):
    module = pytest.importorskip("PIL.Image")
    rows = ["file,kind"]
    for i, (image, label) in enumerate(zip(IMAGES, LABELS, strict=True)):
        path = tmp_path / "shown" / str(label) / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        module.fromarray(image).save(path)
        rows.append(f"shown/{label}/{i}.png,{label}")
    (tmp_path / "table.csv").write_text("\n".join(rows) + "\n")
    assert_same(records([tmp_path / "table.csv"], inputs=("file",), targets=("kind",)))
    _, images, labels = records([tmp_path / "shown"])
    assert sorted(labels) == sorted(map(str, LABELS)) and images[0].shape == (5, 7, 1)
    recipe = DataRecipe(train=(str(tmp_path / "table.csv"),), input="file", target="kind")
    assert DataSource(recipe, LABELS_OF_IMAGES).modality.name == "images"  # by the paths


def test_a_damaged_image_is_named_and_skipped_or_refused(tmp_path):
    module = pytest.importorskip("PIL.Image")
    (tmp_path / "a").mkdir()
    module.fromarray(IMAGES[0]).save(tmp_path / "a" / "1.png")
    (tmp_path / "a" / "2.png").write_bytes(b"\x89PNG no more")
    lenient = ImageFiles([tmp_path / "a"], ColumnSelection())
    assert [len(chunk) for chunk in lenient.examples()] == [1]
    assert lenient.skipped == 1 and "2.png: is no image" in lenient.problems[0]
    with pytest.raises(UserError, match=r"2\.png: is no image that can be read"):
        list(ImageFiles([tmp_path / "a"], ColumnSelection(), strict=True).examples())
    with pytest.raises(UserError, match=r"2\.png"):
        list(unlabelled_images([tmp_path / "a"], 1))


@pytest.mark.parametrize(
    ("cut", "message"), [(slice(None, -3), "truncated or damaged"), (slice(None, 6), "header")]
)
def test_idx_that_ends_too_early_is_refused(tmp_path, cut, message):
    path = tmp_path / "x-idx3-ubyte"
    path.write_bytes(idx(IMAGES)[cut])
    with pytest.raises(UserError, match=message):
        read_idx(path)


def test_problems_of_arrays_are_named(tmp_path):
    np.savez(tmp_path / "short.npz", x=IMAGES, y=LABELS[:4])
    with pytest.raises(UsageError, match="which array is the labels"):
        records([tmp_path / "short.npz"])
    np.savez(tmp_path / "nan.npz", x=np.where(IMAGES > 200, np.nan, IMAGES / 255), y=LABELS)
    with pytest.raises(UserError, match=r"nan\.npz\[\d\]: pixels must be numbers"):
        records([tmp_path / "nan.npz"])
    np.save(tmp_path / "images.npy", IMAGES)
    with pytest.raises(UsageError, match=r"where are the labels\?.*labels\.npy"):
        records([tmp_path / "images.npy"])
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(UserError, match="Python objects, which are not read"):
        records([tmp_path / "objects.npy"], targets=(str(tmp_path / "objects.npy"),))


def test_copies_are_recognized_by_their_pixels(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.concatenate([IMAGES, IMAGES[:1]]), y=[*LABELS, 2])
    source, _, _ = records([tmp_path / "d.npz"])
    (chunk,) = source.examples()
    keys = chunk.keys()
    assert len(set(keys)) == 6 and keys[0] == keys[6]
    assert chunk.place(6) == f"{tmp_path / 'd.npz'}[6]"


def test_shards_hold_images_of_any_size(tmp_path):
    module = pytest.importorskip("PIL.Image")
    random = np.random.default_rng(2)
    sizes = [(5, 7), (9, 4), (8, 8)] * 5
    images = [random.integers(0, 256, size, dtype=np.uint8) for size in sizes]
    for i, image in enumerate(images):
        path = tmp_path / "p" / "ab"[i % 2] / f"{i:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        module.fromarray(image).save(path)
    data = {"train": [str(tmp_path / "p")], "test_fraction": 0.3}
    table = {"name": "images", "patch": 4}
    recipe = build({"task": {"name": "label"}, "data": data, "input": table})
    corpus = prepare(recipe, tmp_path / "run", print)
    again = prepare(recipe, tmp_path / "run", print)  # verified, not rebuilt
    shards = [shard for shard in (again.train, again.valid, again.test) if shard is not None]
    assert sum(shard.records for shard in shards) == len(images)
    decode = corpus.tokenizer.decode_record
    padded = {decode(s.record(i)).shape[:2] for s in shards for i in range(s.records)}
    assert padded == {(8, 8), (12, 4)}  # multiples of the patch
    assert {*np.concatenate([shard.targets for shard in shards])} == {0, 1}


def test_resizing_leaves_the_mean_and_gives_the_size():
    smooth = np.broadcast_to(np.linspace(0, 250, 12)[:, None, None], (12, 12, 1)).astype(np.uint8)
    smooth.flags.writeable = False  # as in a memory-mapped file
    small = resize_image(smooth, 6)
    assert small.shape == (6, 6, 1) and abs(float(small.mean()) - float(smooth.mean())) < 2
    assert resize_image(small, 6) is small


def test_an_idx_header_is_checked_against_the_size_of_the_file(tmp_path):
    path = tmp_path / "images"
    for sizes in ((2**32 - 1,) * 4, (2**16, 2**16, 2**16, 2**16), (60_000, 28, 28, 1)):
        path.write_bytes(struct.pack(">BBBBIIII", 0, 0, 8, 4, *sizes) + b"\0" * 99)
        with pytest.raises(UserError, match=r"header says .* bytes of data, more than the file"):
            read_idx(path)


def test_pixels_are_counted_before_they_are_decoded(tmp_path):
    image = PIL.new("L", (3, 3))
    image.save(tmp_path / "x.png")
    raw = bytearray((tmp_path / "x.png").read_bytes())
    for sizes in ((9000, 9000), (60_000, 60_000), (2**31 - 1, 2**31 - 1)):
        raw[16:24] = struct.pack(">II", *sizes)
        raw[29:33] = struct.pack(">I", zlib.crc32(bytes(raw[12:29])))
        (tmp_path / "x.png").write_bytes(raw)
        with pytest.raises(ValueError, match="is no image that can be read: "):
            read_image(tmp_path / "x.png", color=False)


def test_formats_that_run_other_programs_are_not_opened(tmp_path):
    (tmp_path / "x.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EOF\n")
    with pytest.raises(ValueError, match="cannot identify image file"):
        read_image(tmp_path / "x.png", color=False)


@pytest.mark.parametrize("top", ["", "set/"])
def test_an_archive_of_folders_is_read_as_the_folders_are(tmp_path, top):
    images = np.random.default_rng(3).integers(0, 256, (6, 5, 4), np.uint8)
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as packed:
        for i, pixels in enumerate(images):
            name = f"{'cat' if i % 2 else 'dog'}/{i}.png"
            (tmp_path / "set" / name).parent.mkdir(parents=True, exist_ok=True)
            PIL.fromarray(pixels).save(tmp_path / "set" / name)
            packed.write(tmp_path / "set" / name, top + name)
    assert holds_images([tmp_path / "set.zip"])
    sources = [ImageFiles([tmp_path / name], ColumnSelection()) for name in ("set", "set.zip")]
    chunks = [next(source.examples()) for source in sources]
    assert chunks[0].targets == chunks[1].targets == [("cat",)] * 3 + [("dog",)] * 3
    for one, two in zip(chunks[0].texts, chunks[1].texts, strict=True):
        assert np.array_equal(one, two)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e308, -1.0])
def test_pixels_out_of_range_are_damage(tmp_path, value):
    images = np.full((3, 4, 4), value)
    images[0] = 0.5
    np.savez(tmp_path / "x.npz", images=images, labels=[0, 1, 1])
    source = ImageFiles([tmp_path / "x.npz"], ColumnSelection())
    valid = [image for chunk in source.examples() for image in chunk.texts]
    assert len(valid) == 1 and source.skipped == 2


@pytest.fixture
def arrays(tmp_path):
    path = tmp_path / "captioned.npz"
    np.savez(path, images=CAPTIONED, captions=np.array(CAPTIONS), group=np.array(GROUPS))
    return path


def pairs(data):
    """Return (pixels, caption, split) of all records, and their source."""
    sources = DataSource(data, CAPTIONS_OF_IMAGES)
    records = []
    for chunk in sources.chunks():
        both = zip(chunk.sources, chunk.texts, strict=True)
        records += [(image.tobytes(), text, chunk.split) for image, text in both]
    return records, sources


def test_a_table_of_paths_and_an_array_hold_the_same_pairs(arrays, tmp_path):
    image = pytest.importorskip("PIL.Image")
    lines = ["file\tcaption"]
    for i, pixels in enumerate(CAPTIONED):
        image.fromarray(pixels).save(tmp_path / f"{i}.png")
        lines.append(f"{i}.png\t{CAPTIONS[i]}")
    table = tmp_path / "captioned.tsv"
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    columns = {"input": "file", "target": "caption"}
    one, sources = pairs(DataRecipe(train=(str(table),), **columns))
    two, _ = pairs(DataRecipe(train=(str(arrays),), target="captions"))
    assert one == two and len(one) == 40 and sources.train.format == "images"
    assert {text for _, text, _ in one} == set(CAPTIONS)
    recipe, messages = plan_recipe([table], data=columns)
    assert recipe.task.name == "target" and recipe.reads == "patches"
    assert "40 of 8 × 12 pixels, RGB" in messages[0] and "2 × 3 patches of 4 × 4" not in messages[1]
    for name, number in (("3.png", 3), ("captioned.npz[7]", 7)):
        where, pixels = MODALITIES["images"]().open(name, COLOR_PATCHES, tmp_path)
        assert where == str(tmp_path / name) and np.array_equal(pixels, CAPTIONED[number])


def test_groups_stay_in_one_split_and_so_do_images(arrays, tmp_path):
    data = DataRecipe(
        train=(str(arrays),),
        target="captions",
        group="group",
        test_fraction=0.3,
        valid_fraction=0.2,
    )
    records, _ = pairs(data)
    splits = {text: split for _, text, split in records}
    assert set(splits.values()) == {0, 1, 2}
    for group in set(GROUPS):
        assert len({splits[c] for c, g in zip(CAPTIONS, GROUPS, strict=True) if g == group}) == 1
    twice = tmp_path / "twice.npz"  # two captions for every image
    np.savez(
        twice,
        images=np.concatenate([CAPTIONED, CAPTIONED]),
        captions=np.array(CAPTIONS + [c.upper() for c in CAPTIONS]),
    )
    shared = {"test_fraction": 0.3, "valid_fraction": 0.2}
    records, sources = pairs(DataRecipe(train=(str(twice),), **shared))
    by_image = {}
    for pixels, _, split in records:
        by_image.setdefault(pixels, set()).add(split)
    assert len(by_image) == 40 and all(len(one) == 1 for one in by_image.values())
    report = inspect_images(sources, "")
    assert report.captions.different == 80
    assert not any(leak.records for leak in report.leaks.values())
    assert dict(report.rows())["images"] == "80"


def test_shards_and_batches_hold_every_pair_once(arrays, tmp_path):
    data = {"train": [str(arrays)], "target": "captions", "valid_fraction": 0.0}
    tables = {"input": {"name": "images", "patch": 4}, "output": {"tokenizer": "words"}}
    run = tmp_path / "run"
    corpus = prepare(build({"task": {"name": "target"}, "data": data, **tables}), run, print)
    assert isinstance(corpus.source_tokenizer, Patches) and (run / Patches.file).exists()
    assert reopen(run, verify=True).train.source.ids.shape == corpus.train.source.ids.shape
    known = dict(zip(CAPTIONS, CAPTIONED, strict=True))
    words, patches = corpus.tokenizer, corpus.source_tokenizer
    shared = {"max_len": 12, "batch_tokens": 40, "supports_packing": False}
    batches = [*windows(corpus.train, words, stride=6, **shared)]
    loader = TokenLoader(corpus.train, words, seed=0, **shared)
    epoch = -(-loader.items // loader.items_per_step)
    trained = [batch for step in range(3 * epoch) for batch in loader.step(step)]
    for chosen in (batches, trained):
        captions = []
        for batch in chosen:
            for ids, targets, pixels in zip(
                batch.ids, batch.targets, batch.source.ids, strict=True
            ):
                text = words.decode(targets[targets >= 0][:-1].tolist())
                assert ids[0] == words.start and pixels.dtype.itemsize == 1
                assert np.array_equal(patches.decode_record(pixels.numpy()), known[text])
                captions.append(text)
            assert bool((batch.source.segments == 1).all())
        assert len(set(captions)) == corpus.train.records
        assert chosen is trained or len(captions) == corpus.train.records
    assert corpus.facts["longest"] >= 5


def test_mistakes_in_captions_are_named(arrays, tmp_path):
    def opened(**data):
        return DataSource(DataRecipe(**{"train": (str(arrays),), **data}), CAPTIONS_OF_IMAGES)

    with pytest.raises(UsageError, match="which array is the captions"):
        opened()
    with pytest.raises(UsageError, match="has no such array; it holds images uint8"):
        opened(target="captions", group="family")
    with pytest.raises(UsageError, match="one column of images and one of texts"):
        opened(target="captions,group")
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "folder").mkdir()
    image.fromarray(CAPTIONED[0]).save(tmp_path / "folder" / "0.png")
    with pytest.raises(UsageError, match="images without captions; give a table of both"):
        opened(train=(str(tmp_path / "folder"),))
    with pytest.raises(UserError, match=r"captioned.npz: has no image 99"):
        MODALITIES["images"]().open(f"{arrays}[99]", COLOR_PATCHES)
    with pytest.raises(UserError, match="no such file"):
        MODALITIES["images"]().open("nowhere.png", COLOR_PATCHES)
    with pytest.raises(UsageError, match="output: tokenizer 'patches' is not one of text"):
        plan_recipe([arrays], data={"target": "captions"}, output={"tokenizer": "patches"})
    (tmp_path / "broken.tsv").write_text("file\tcaption\nfolder/0.png\tone\nno.png\ttwo\n")
    broken = opened(train=(str(tmp_path / "broken.tsv"),), input="file", target="caption")
    assert sum(len(chunk.texts) for chunk in broken.chunks()) == 1
    assert broken.train.skipped == 1 and "broken.tsv:3" in broken.train.problems[0]


def test_the_parts_of_mnist_as_downloaded_are_told_by_their_names(tmp_path):
    """Such a folder held no text files."""
    for part, count in (("train", 5), ("t10k", 3)):
        header = bytes([0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, 2, 0, 0, 0, 4])
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(header + bytes(count * 8))
        labels = bytes([0, 0, 8, 1, 0, 0, 0, count]) + bytes(range(count))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(labels)
    train, test = (tmp_path / f"{part}-images-idx3-ubyte" for part in ("train", "t10k"))
    assert published_parts(tmp_path) == {"train": [train], "test": [test]}
    settings, (line,) = complete_data(DataRecipe(train=(str(tmp_path),)))
    assert settings == {"train": [str(train)], "test": [str(test)]}
    assert "test t10k-images-idx3-ubyte" in line
    given = DataRecipe(train=(str(tmp_path),), test=(str(test),))
    assert complete_data(given)[0] == {"train": [str(train)]}
    (tmp_path / "a.png").write_bytes(b"")
    assert published_parts(tmp_path) == {}
