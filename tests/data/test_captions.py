"""Pictures with captions: tables and arrays give the same pairs, and mistakes are named."""

import numpy as np
import pytest

from regard.api import plan
from regard.data.batching import TokenLoader, windows
from regard.data.corpus import prepare, reopen
from regard.data.inputs import thing_named
from regard.data.report import inspect_images
from regard.data.sources import DataSource
from regard.errors import UsageError, UserError
from regard.recipe import DataRecipe, TokensRecipe
from regard.tokenizers import Patches

IMAGES = np.random.default_rng(0).integers(0, 256, (40, 8, 12, 3), dtype=np.uint8)
CAPTIONS = [f"picture number {i} of {'many' if i % 3 else 'very many'}" for i in range(40)]
GROUPS = [str(i // 5) for i in range(40)]
TOKENS = TokensRecipe(kind="words", source="patches", patch=4)
COLOURS = Patches.train(iter(IMAGES))


@pytest.fixture
def arrays(tmp_path):
    path = tmp_path / "told.npz"
    np.savez(path, images=IMAGES, captions=np.array(CAPTIONS), group=np.array(GROUPS))
    return path


def pairs(data):
    """(pixels, caption, side) of all records, and the sources they are from."""
    sources = DataSource(data, "target")
    found = []
    for piece in sources.pieces():
        both = zip(piece.sources, piece.texts, strict=True)
        found += [(image.tobytes(), text, piece.side) for image, text in both]
    return found, sources


def test_a_table_of_paths_and_an_array_hold_the_same_pairs(arrays, tmp_path):
    image = pytest.importorskip("PIL.Image")
    lines = ["file\tcaption"]
    for i, pixels in enumerate(IMAGES):
        image.fromarray(pixels).save(tmp_path / f"{i}.png")
        lines.append(f"{i}.png\t{CAPTIONS[i]}")
    table = tmp_path / "told.tsv"
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    columns = {"input": "file", "target": "caption"}
    one, sources = pairs(DataRecipe(train=(str(table),), **columns))
    two, _ = pairs(DataRecipe(train=(str(arrays),), target="captions"))
    assert one == two and len(one) == 40 and sources.train.format == "images"
    assert {text for _, text, _ in one} == set(CAPTIONS)
    recipe, said = plan([table], data=columns)
    assert recipe.task == "target" and recipe.tokens.source == "patches"
    assert "40 of 8 × 12 pixels, RGB" in said[0] and "2 × 3 patches of 4 × 4" not in said[1]
    for name, number in (("3.png", 3), ("told.npz[7]", 7)):
        place, picture = thing_named(name, COLOURS, {}, base=tmp_path)
        assert place == str(tmp_path / name) and np.array_equal(picture, IMAGES[number])


def test_groups_stay_on_one_side_and_pictures_do(arrays, tmp_path):
    data = DataRecipe(
        train=(str(arrays),),
        target="captions",
        group="group",
        test_fraction=0.3,
        valid_fraction=0.2,
    )
    found, _ = pairs(data)
    sides = {text: side for _, text, side in found}
    assert set(sides.values()) == {0, 1, 2}
    for group in set(GROUPS):
        assert len({sides[c] for c, g in zip(CAPTIONS, GROUPS, strict=True) if g == group}) == 1
    twice = tmp_path / "twice.npz"  # every picture is told twice
    np.savez(
        twice,
        images=np.concatenate([IMAGES, IMAGES]),
        captions=np.array(CAPTIONS + [c.upper() for c in CAPTIONS]),
    )
    shared = {"test_fraction": 0.3, "valid_fraction": 0.2}
    found, sources = pairs(DataRecipe(train=(str(twice),), **shared))
    by_picture = {}
    for pixels, _, side in found:
        by_picture.setdefault(pixels, set()).add(side)
    assert len(by_picture) == 40 and all(len(one) == 1 for one in by_picture.values())
    told = inspect_images(sources, "")
    assert told.captions.different == 80 and not any(leak.records for leak in told.leaks.values())
    assert dict(told.rows())["pictures"] == "80"


def test_shards_and_batches_hold_every_pair_once_whole(arrays, tmp_path):
    data = DataRecipe(train=(str(arrays),), target="captions", valid_fraction=0.0)
    run = tmp_path / "run"
    corpus = prepare(data, TOKENS, run, print, task="target")
    assert isinstance(corpus.source_tokenizer, Patches) and (run / Patches.file).exists()
    assert reopen(run, verify=True).train.source.ids.shape == corpus.train.source.ids.shape
    known = dict(zip(CAPTIONS, IMAGES, strict=True))
    words, patches = corpus.tokenizer, corpus.source_tokenizer
    shared = {"max_len": 12, "batch_tokens": 40, "supports_packing": False}
    batches = [*windows(corpus.train, words, stride=6, **shared)]
    loader = TokenLoader(corpus.train, words, seed=0, **shared)
    epoch = -(-loader.items // loader.items_per_step)
    trained = [batch for step in range(3 * epoch) for batch in loader.step(step)]
    for some in (batches, trained):
        seen = []
        for batch in some:
            for ids, targets, pixels in zip(
                batch.ids, batch.targets, batch.source.ids, strict=True
            ):
                text = words.decode(targets[targets >= 0][:-1].tolist())
                assert ids[0] == words.start and pixels.dtype.itemsize == 1
                assert np.array_equal(patches.picture(pixels.numpy()), known[text])
                seen.append(text)
            assert bool((batch.source.segments == 1).all())
        assert len(set(seen)) == corpus.train.records
        assert some is trained or len(seen) == corpus.train.records
    assert corpus.facts["longest"] >= 5


def test_mistakes_are_named(arrays, tmp_path):
    def opened(**data):
        return DataSource(DataRecipe(**{"train": (str(arrays),), **data}), "target")

    with pytest.raises(UsageError, match="which array is the captions"):
        opened()
    with pytest.raises(UsageError, match="has no such array; it holds images uint8"):
        opened(target="captions", group="family")
    with pytest.raises(UsageError, match="one column of pictures and one of texts"):
        opened(target="captions,group")
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "folder").mkdir()
    image.fromarray(IMAGES[0]).save(tmp_path / "folder" / "0.png")
    with pytest.raises(UsageError, match="pictures without captions; give a table of both"):
        opened(train=(str(tmp_path / "folder"),))
    with pytest.raises(UserError, match=r"told.npz: has no picture 99"):
        thing_named(f"{arrays}[99]", COLOURS, {})
    with pytest.raises(UserError, match="no such file"):
        thing_named("nowhere.png", COLOURS, {})
    with pytest.raises(UsageError, match="captions are texts, got 'patches'"):
        plan([arrays], data={"target": "captions"}, tokens={"kind": "patches"})
    (tmp_path / "broken.tsv").write_text("file\tcaption\nfolder/0.png\tone\nno.png\ttwo\n")
    broken = opened(train=(str(tmp_path / "broken.tsv"),), input="file", target="caption")
    assert sum(len(piece.texts) for piece in broken.pieces()) == 1
    assert broken.train.skipped == 1 and "broken.tsv:3" in broken.train.problems[0]
