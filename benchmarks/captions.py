"""Captions of emoji: a captioner beside the caption of the nearest picture, on a held-out fifth.

The pictures are those of Noto Emoji, 32 × 32 pixels cut from one sheet, and a caption is the
emoji's name in lower case. Skin tones and genders of one emoji are one group and stay on one side
(data.group). Figures are those of `regard evaluate`, and recall: is a picture's own caption the
likeliest of all held-out ones, and a caption's own picture? Pictures of skin tones are many copies
of few: figures are told of all held-out pictures, and of those without a tone alone. Those of the
validation part stand beside them, since they alone may choose a setting; `--no-test` has no others.

    python benchmarks/captions.py --data DIR [--rows transformer,nearest] [--seeds 1]
        [--set train.steps=300] [--device cuda] [--no-recall] [--no-test] [--keep FOLDER]
        [--json FILE]

`--prepare FILE.npz` only cuts the sheet, for `regard train recipes/emoji.toml FILE.npz`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from regard.api import held_out, load_interpreter, plan, train
from regard.data.corpus import reopen
from regard.data.pictures import digest
from regard.data.shards import Shard
from regard.evaluate.estimates import Estimate
from regard.evaluate.retrieval import recall
from regard.evaluate.translation import measure_translation
from regard.train.progress import Reporter

RECIPE = Path(__file__).parent.parent / "recipes" / "emoji.toml"
SIDE, CELL = 32, 34  # pixels of a picture, and of its cell, with a border of one around
TONES = {f"1F3F{c}" for c in "BCDEF"}
# Parts of a code that say nothing but a gender, a direction or how it is drawn, ...
LEFT_OUT = TONES | {"200D", "FE0F", "2640", "2642", "27A1"}
# ... and men, women, boys and girls as those of whom nothing is said.
SAME = {"1F468": "1F9D1", "1F469": "1F9D1", "1F466": "1F9D2", "1F467": "1F9D2"}
SAME |= {"1F474": "1F9D3", "1F475": "1F9D3", "1F934": "1F478", "1F936": "1F385", "1F57A": "1F483"}
PAIRS = {"1F46B": "hands", "1F46C": "hands", "1F46D": "hands", "1F9D1-1F91D-1F9D1": "hands"}
PAIRS |= {"1F48F": "kiss", "1F9D1-2764-1F48B-1F9D1": "kiss", "1F491": "love"}
PAIRS |= {"1F9D1-2764-1F9D1": "love", "1F9D1-1F384": "1F385", "1F46A": "family"}


def group_of(code: str) -> str:
    """What the variants of an emoji have in common, from its code points."""
    parts = [SAME.get(part, part) for part in code.split("-") if part not in LEFT_OUT]
    found = "-".join(parts) or code  # a tone by itself
    return PAIRS.get(found, "family" if re.fullmatch(r"1F9D1(-1F9D[12])+", found) else found)


def entries(document: list[dict[str, Any]]) -> Iterator[tuple[str, str, bool, int, int]]:
    """Caption, group, whether it has a skin tone, and column and row in the sheet."""
    for entry in document:
        name = " ".join(entry["name"].lower().split())
        for one in (entry, *entry.get("skin_variations", {}).values()):
            if one["has_img_google"]:
                toned = one is not entry
                yield name, group_of(entry["unified"]), toned, one["sheet_x"], one["sheet_y"]


def prepare(data: Path, out: Path) -> set[str]:
    """Cut the sheet into `out`, and give the digests of pictures without a skin tone."""
    from PIL import Image

    folder = data / "captions" / "noto_emoji"
    with Image.open(folder / "sheet_google_32_256c.png") as sheet:
        whole = sheet.convert("RGBA")
        white = Image.new("RGBA", whole.size, (255, 255, 255, 255))
        pixels = np.array(Image.alpha_composite(white, whole).convert("RGB"))
    document = json.loads((folder / "emoji.json").read_text(encoding="utf-8"))
    images, captions, groups, plain = [], [], [], set()
    for name, group, toned, x, y in entries(document):
        top, left = y * CELL + 1, x * CELL + 1
        image = pixels[top : top + SIDE, left : left + SIDE]
        images.append(image)
        captions.append(name)
        groups.append(group)
        if not toned:
            plain.add(digest(image))
    np.savez_compressed(
        out, images=np.stack(images), captions=np.array(captions), group=np.array(groups)
    )
    return plain


def some_of(shard: Shard, chosen: list[int]) -> Shard:
    """Some pairs of a shard."""

    def part(of: Shard) -> Shard:
        records = [of.record(i) for i in chosen]
        offsets = np.concatenate([[0], np.cumsum([len(one) for one in records])]).astype(np.int64)
        ids = np.concatenate(records)
        return dataclasses.replace(
            of, ids=ids, offsets=offsets, records=len(chosen), tokens=len(ids), source=None
        )

    assert shard.source is not None
    return part(shard).paired(part(shard.source))


def measured(run: Path, plain: set[str], options: argparse.Namespace) -> dict[str, Any]:
    """The figures of a run on what it held out, by part."""
    interpreter = load_interpreter(run, device=options.device)
    valid = reopen(run).side("valid")
    assert valid is not None
    validated = dict(measure_translation(interpreter, valid).judged)
    if not options.test:
        return {"estimates": {"validation": validated}, "examples": []}
    _, shard = held_out(run, interpreter)
    assert shard.source is not None
    picture = interpreter.source_tokenizer.picture  # type: ignore[attr-defined]
    chosen = [i for i in range(shard.records) if digest(picture(shard.source.record(i))) in plain]
    found: dict[str, dict[str, Estimate]] = {"validation": validated}
    for part, pairs in (("all", shard), ("without tones", some_of(shard, chosen))):
        made = measure_translation(interpreter, pairs)
        found[part] = dict(made.judged)
        if part != "all":
            examples = [(one.reference, one.translation) for one in made.made[:20]]
            if options.recall:
                found[part] |= recall(interpreter, pairs)
    return {"estimates": found, "examples": examples}


def one_row(name: str, seed: int, data: Path, folder: Path, asked: list[str]) -> tuple[Path, float]:
    """A run of the recipe by this model, and the seconds it took."""
    run, began = folder / f"{name}-{seed}", time.monotonic()
    if not (run / "regard.json").exists():
        more = [f"model.name={name}"] if name != "transformer" else []
        source = [RECIPE, data] if name == "transformer" else [data]
        tables = ["task=target", "data.group=group", "data.test_fraction=0.2"]
        tables += ["data.valid_fraction=0.05", "data.input=images", "data.target=captions"]
        sets = [*tables, *asked] if name == "transformer" else [*tables, *more]
        recipe, lines = plan(source, assignments=[*sets, f"train.seed={seed}"])
        for line in lines:
            print(line, file=sys.stderr)
        train(recipe, run, resume=run.exists(), reporter=Reporter())
    return run, time.monotonic() - began


def main() -> None:
    """Train, measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder of data sets")
    parser.add_argument("--rows", default="nearest,transformer")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--no-recall", dest="recall", action="store_false")
    parser.add_argument("--no-test", dest="test", action="store_false")
    parser.add_argument("--keep", type=Path, help="where runs are left, and found again")
    parser.add_argument("--prepare", type=Path, help="only cut the sheet into this .npz file")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.prepare:
        prepare(options.data, options.prepare)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        data = folder / "emoji.npz"
        plain = prepare(options.data, data)
        rows: dict[str, dict[str, Any]] = {}
        for name in options.rows.split(","):
            for seed in range(options.seeds if name == "transformer" else 1):
                run, seconds = one_row(name, seed, data, folder, options.sets)
                rows[f"{name}-{seed}"] = measured(run, plain, options) | {"seconds": seconds}
    report(rows, options.json)


def report(rows: dict[str, dict[str, Any]], path: Path | None) -> None:
    """Figures of every row, and the differences to the nearest picture in pairs."""
    document: dict[str, Any] = {}
    base = rows.get("nearest-0")
    for name, row in rows.items():
        print(f"\n{name} ({row['seconds']:.0f} s)")
        told = document[name] = {"seconds": row["seconds"], "examples": row["examples"]}
        for part, estimates in row["estimates"].items():
            told[part] = {key: one.figure().to_json() for key, one in estimates.items()}
            for key, one in estimates.items():
                line = f"  {part:14} {key:10} {one.figure()}"
                if base is not None and row is not base:
                    gap = one.minus(base["estimates"][part][key])
                    told[part][f"{key}_minus_nearest"] = gap.to_json()
                    line += f"   nearest {gap}"
                print(line)
        for reference, made in row["examples"]:
            print(f"    {reference:44} {made}")
    if path:
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
