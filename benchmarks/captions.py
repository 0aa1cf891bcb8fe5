"""Captions of emoji by a recipe, beside the caption of the nearest picture, on a held-out fifth.

The pictures are those of Noto Emoji, 32 × 32 pixels cut from one sheet, and a caption is the
emoji's name in lower case. Skin tones and genders of one emoji are one group and stay on one side
(data.group). Figures are those of `regard evaluate`, and recall: is a picture's own caption the
likeliest of all held-out ones, and a caption's own picture? Pictures of skin tones are many copies
of few: figures are told of all held-out pictures, and of those without a tone alone.

    python benchmarks/captions.py --data DIR [--rows nearest,transformer] [--seeds 1] [--folds 0]
        [--jobs 1] [--set train.steps=300] [--device cuda] [--no-recall] [--keep FOLDER]
        [--json FILE]

`--folds 4` is for choosing settings: the held-out fifth is taken away, and the groups that are left
are tested once each, by four runs a row. `--prepare FILE.npz` only cuts the sheet, for
`regard train recipes/emoji.toml FILE.npz`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.api import held_out, load_interpreter, plan, train
from regard.data.pictures import digest
from regard.data.shards import Shard
from regard.data.splits import assign, bucket
from regard.evaluate.estimates import Estimate
from regard.evaluate.retrieval import recall
from regard.evaluate.translation import Sentence, judged_of, measure_translation
from regard.train.progress import Reporter

RECIPE = Path(__file__).parent.parent / "recipes" / "emoji.toml"
HELD_OUT = 0.2  # of the groups
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


@dataclass(frozen=True)
class Job:
    """One run of one row: trained on a file and tested on another, or on a part of the same."""

    row: str
    seed: int
    run: Path
    data: Path
    test: Path | None


@dataclass(frozen=True)
class Done:
    """What a run said of held-out pictures, by part, what it recalled, and its seconds."""

    made: dict[str, tuple[Sentence, ...]]
    recalled: dict[str, Estimate]
    seconds: float


def folds_of(path: Path, count: int) -> list[tuple[Path, Path | None]]:
    """The files to train on and to test on: with folds, without what is held out for good."""
    if not count:
        return [(path, None)]
    with np.load(path) as held:
        arrays = {name: held[name] for name in held.files}
    fold = np.array([int(bucket(group, seed=1) * count) for group in arrays["group"].tolist()])
    fold[assign(arrays["group"].tolist(), 0.0, HELD_OUT) > 0] = -1
    found: list[tuple[Path, Path | None]] = []
    for k in range(count):
        both = path.with_name(f"train-{k}.npz"), path.with_name(f"test-{k}.npz")
        for name, chosen in zip(both, ((fold != k) & (fold >= 0), fold == k), strict=True):
            np.savez_compressed(name, **{key: array[chosen] for key, array in arrays.items()})
        found.append(both)
    return found


def carried_out(job: Job, plain: set[str], options: argparse.Namespace) -> Done:
    """Train, and say something of every picture that was held out."""
    began, by_recipe = time.monotonic(), job.row == "transformer"
    if not (job.run / "regard.json").exists():
        sets = ["task=target", "data.group=group", "data.valid_fraction=0"]
        sets += ["data.input=images", "data.target=captions", f"train.seed={job.seed}"]
        if job.test is None:
            sets.append(f"data.test_fraction={HELD_OUT}")
        else:
            sets += ["data.test_fraction=0", f"data.test={job.test}"]
        sets += options.sets if by_recipe else [f"model.name={job.row}"]
        recipe, lines = plan([RECIPE, job.data] if by_recipe else [job.data], assignments=sets)
        print(*lines, sep="\n", file=sys.stderr)
        train(recipe, job.run, resume=job.run.exists(), reporter=Reporter())
    seconds = time.monotonic() - began
    interpreter = load_interpreter(job.run, device=options.device)
    _, shard = held_out(job.run, interpreter)
    assert shard.source is not None
    picture = interpreter.source_tokenizer.picture  # type: ignore[attr-defined]
    chosen = [i for i in range(shard.records) if digest(picture(shard.source.record(i))) in plain]
    made = measure_translation(interpreter, shard).made
    asked = options.recall and not options.folds
    recalled = recall(interpreter, some_of(shard, chosen)) if asked else {}
    parts = {"all": made, "without tones": tuple(made[i] for i in chosen)}
    return Done(parts, recalled, seconds)


def pooled(runs: Sequence[Done]) -> dict[str, Any]:
    """The figures of a row, by part, from all of its folds."""
    estimates, examples = {}, list[tuple[str, str]]()
    for part in runs[0].made:
        made = [one for run in runs for one in run.made[part]]
        estimates[part] = judged_of(made) | (runs[0].recalled if part != "all" else {})
        examples = [(one.reference, one.translation) for one in made[:20]]
    seconds = sum(run.seconds for run in runs) / len(runs)
    return {"estimates": estimates, "examples": examples, "seconds": seconds}


def main() -> None:
    """Train, measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder of data sets")
    parser.add_argument("--rows", default="nearest,transformer")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--folds", type=int, default=0, help="of what is not held out")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--no-recall", dest="recall", action="store_false")
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
        plain = prepare(options.data, folder / "emoji.npz")
        jobs: dict[str, list[Job]] = {}
        for row in options.rows.split(","):
            for seed in range(options.seeds if row == "transformer" else 1):
                for k, files in enumerate(folds_of(folder / "emoji.npz", options.folds)):
                    run = folder / (f"{row}-{seed}" + (f"-fold-{k}" if options.folds else ""))
                    jobs.setdefault(f"{row}-{seed}", []).append(Job(row, seed, run, *files))
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(options.jobs, mp_context=spawn) as pool:
            runs = {
                name: [pool.submit(carried_out, job, plain, options) for job in several]
                for name, several in jobs.items()
            }
            rows = {name: pooled([one.result() for one in row]) for name, row in runs.items()}
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
