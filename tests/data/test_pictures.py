"""Files of pictures with labels: every layout gives the same records, and damage is named."""

import gzip
import struct
import zipfile
import zlib

import numpy as np
import pytest
from PIL import Image as PIL

from regard.data.corpus import prepare
from regard.data.image_files import read_idx, read_picture, resized
from regard.data.images import ImageFiles, holds_images, unlabelled
from regard.data.labelled import ColumnSelection
from regard.data.sources import DataSource
from regard.errors import UsageError, UserError
from regard.recipe import DataRecipe, TokensRecipe

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 5, 7), dtype=np.uint8)
LABELS = np.array([2, 0, 1, 0, 2, 1])


def idx(array, kind=8):
    """An IDX file, byte by byte: two zeros, type, dimensions, sizes, data."""
    head = bytes([0, 0, kind, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.tobytes()


def records(files, **asked):
    source = ImageFiles([*files], ColumnSelection(**asked), strict=True)
    chunks = list(source.examples())
    images = [image for chunk in chunks for image in chunk.texts]
    return source, images, [cells[0] for chunk in chunks for cells in chunk.targets]


def same(found):
    _, images, labels = found
    assert labels == [str(y) for y in LABELS]
    assert all(np.array_equal(a[..., 0], b) for a, b in zip(images, IMAGES, strict=True))


def test_idx_with_the_labels_beside_it(tmp_path):
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(idx(IMAGES)))
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(
        gzip.compress(idx(LABELS.astype(np.uint8)))
    )
    assert holds_images([path])
    same(records([path]))
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx(IMAGES[:2]))
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(LABELS[:2].astype(np.uint8)))
    data = {"train": (str(path),), "target": str(tmp_path / "train-labels-idx1-ubyte.gz")}
    sources = DataSource(
        DataRecipe(test=(str(tmp_path / "t10k-images-idx3-ubyte"),), **data), "label"
    )
    held = [piece for piece in sources.pieces() if piece.side == 2]  # whose labels are their own
    assert [cells for piece in held for cells in piece.targets] == [("2",), ("0",)]


def test_arrays_with_a_file_of_labels_and_with_both_in_one(tmp_path):
    np.save(tmp_path / "x.npy", IMAGES)
    np.save(tmp_path / "y.npy", LABELS)
    same(records([tmp_path / "x.npy"], targets=(str(tmp_path / "y.npy"),)))
    np.savez(tmp_path / "both.npz", pictures=IMAGES, kinds=LABELS)
    same(records([tmp_path / "both.npz"]))
    np.savez(tmp_path / "three.npz", pictures=IMAGES, kinds=LABELS, other=LABELS[::-1])
    same(records([tmp_path / "three.npz"], targets=("kinds",)))
    with pytest.raises(UsageError, match=r"which array is the labels\? --target"):
        records([tmp_path / "three.npz"])


def test_white_may_be_one_and_channels_may_come_first(tmp_path):
    coloured = np.random.default_rng(1).integers(0, 256, (3, 3, 5, 7), dtype=np.uint8)
    np.savez(tmp_path / "first.npz", x=coloured / np.float32(255), y=LABELS[:3])
    _, images, _ = records([tmp_path / "first.npz"])
    assert all(
        np.array_equal(a, b.transpose(1, 2, 0)) for a, b in zip(images, coloured, strict=True)
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
    same(records([tmp_path / "table.csv"], inputs=("file",), targets=("kind",)))
    _, images, labels = records([tmp_path / "shown"])
    assert sorted(labels) == sorted(map(str, LABELS)) and images[0].shape == (5, 7, 1)
    recipe = DataRecipe(train=(str(tmp_path / "table.csv"),), input="file", target="kind")
    assert DataSource(recipe, "label").numbered  # without being told


def test_a_broken_picture_is_named_and_left_out_or_refused(tmp_path):
    module = pytest.importorskip("PIL.Image")
    (tmp_path / "a").mkdir()
    module.fromarray(IMAGES[0]).save(tmp_path / "a" / "1.png")
    (tmp_path / "a" / "2.png").write_bytes(b"\x89PNG no more")
    lenient = ImageFiles([tmp_path / "a"], ColumnSelection())
    assert [len(chunk) for chunk in lenient.examples()] == [1]
    assert lenient.skipped == 1 and "2.png: is no picture" in lenient.problems[0]
    with pytest.raises(UserError, match=r"2\.png: is no picture that can be read"):
        list(ImageFiles([tmp_path / "a"], ColumnSelection(), strict=True).examples())
    with pytest.raises(UserError, match=r"2\.png"):
        list(unlabelled([tmp_path / "a"], 1))


@pytest.mark.parametrize(
    ("cut", "said"), [(slice(None, -3), "truncated or damaged"), (slice(None, 6), "header")]
)
def test_idx_that_ends_too_early_is_refused(tmp_path, cut, said):
    path = tmp_path / "x-idx3-ubyte"
    path.write_bytes(idx(IMAGES)[cut])
    with pytest.raises(UserError, match=said):
        read_idx(path)


def test_what_is_wrong_with_arrays_is_said(tmp_path):
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


def test_copies_are_known_by_their_pixels(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.concatenate([IMAGES, IMAGES[:1]]), y=[*LABELS, 2])
    source, _, _ = records([tmp_path / "d.npz"])
    (chunk,) = source.examples()
    keys = chunk.keys()
    assert len(set(keys)) == 6 and keys[0] == keys[6]
    assert chunk.place(6) == f"{tmp_path / 'd.npz'}[6]"


def test_shards_hold_pictures_of_any_size(tmp_path):
    module = pytest.importorskip("PIL.Image")
    random = np.random.default_rng(2)
    sizes = [(5, 7), (9, 4), (8, 8)] * 5
    made = [random.integers(0, 256, size, dtype=np.uint8) for size in sizes]
    for i, image in enumerate(made):
        path = tmp_path / "p" / "ab"[i % 2] / f"{i:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        module.fromarray(image).save(path)
    data = DataRecipe(train=(str(tmp_path / "p"),), format="images", test_fraction=0.3)
    tokens = TokensRecipe(kind="patches", patch=4)
    corpus = prepare(data, tokens, tmp_path / "run", print, task="label")
    again = prepare(data, tokens, tmp_path / "run", print, task="label")  # verified, not rebuilt
    held = [shard for shard in (again.train, again.valid, again.test) if shard is not None]
    assert sum(shard.records for shard in held) == len(made)
    seen = {corpus.tokenizer.picture(s.record(i)).shape[:2] for s in held for i in range(s.records)}
    assert seen == {(8, 8), (12, 4)}  # filled up to whole patches
    assert {*np.concatenate([shard.targets for shard in held])} == {0, 1}


def test_resizing_leaves_the_mean_and_gives_the_size():
    smooth = np.broadcast_to(np.linspace(0, 250, 12)[:, None, None], (12, 12, 1)).astype(np.uint8)
    smooth.flags.writeable = False  # as those of a file that is mapped
    made = resized(smooth, 6)
    assert made.shape == (6, 6, 1) and abs(float(made.mean()) - float(smooth.mean())) < 2
    assert resized(made, 6) is made


def test_an_idx_header_is_checked_against_the_size_of_the_file(tmp_path):
    path = tmp_path / "images"
    for sides in ((2**32 - 1,) * 4, (2**16, 2**16, 2**16, 2**16), (60_000, 28, 28, 1)):
        path.write_bytes(struct.pack(">BBBBIIII", 0, 0, 8, 4, *sides) + b"\0" * 99)
        with pytest.raises(UserError, match=r"header says .* bytes of data, more than the file"):
            read_idx(path)


def test_pixels_are_counted_before_they_are_decoded(tmp_path):
    image = PIL.new("L", (3, 3))
    image.save(tmp_path / "x.png")
    raw = bytearray((tmp_path / "x.png").read_bytes())
    for sides in ((9000, 9000), (60_000, 60_000), (2**31 - 1, 2**31 - 1)):
        raw[16:24] = struct.pack(">II", *sides)
        raw[29:33] = struct.pack(">I", zlib.crc32(bytes(raw[12:29])))
        (tmp_path / "x.png").write_bytes(raw)
        with pytest.raises(ValueError, match="is no picture that can be read: "):
            read_picture(tmp_path / "x.png", colours=False)


def test_formats_that_run_other_programs_are_not_opened(tmp_path):
    (tmp_path / "x.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EOF\n")
    with pytest.raises(ValueError, match="cannot identify image file"):
        read_picture(tmp_path / "x.png", colours=False)


@pytest.mark.parametrize("top", ["", "set/"])
def test_an_archive_of_folders_is_read_as_the_folders_are(tmp_path, top):
    drawn = np.random.default_rng(3).integers(0, 256, (6, 5, 4), np.uint8)
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as packed:
        for i, pixels in enumerate(drawn):
            name = f"{'cat' if i % 2 else 'dog'}/{i}.png"
            (tmp_path / "set" / name).parent.mkdir(parents=True, exist_ok=True)
            PIL.fromarray(pixels).save(tmp_path / "set" / name)
            packed.write(tmp_path / "set" / name, top + name)
    assert holds_images([tmp_path / "set.zip"])
    found = [ImageFiles([tmp_path / name], ColumnSelection()) for name in ("set", "set.zip")]
    chunks = [next(source.examples()) for source in found]
    assert chunks[0].targets == chunks[1].targets == [("cat",)] * 3 + [("dog",)] * 3
    for one, two in zip(chunks[0].texts, chunks[1].texts, strict=True):
        assert np.array_equal(one, two)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e308, -1.0])
def test_pixels_that_are_no_numbers_are_damaged_pictures(tmp_path, value):
    images = np.full((3, 4, 4), value)
    images[0] = 0.5
    np.savez(tmp_path / "x.npz", images=images, labels=[0, 1, 1])
    source = ImageFiles([tmp_path / "x.npz"], ColumnSelection())
    kept = [image for chunk in source.examples() for image in chunk.texts]
    assert len(kept) == 1 and source.skipped == 2
