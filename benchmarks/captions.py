"""Captions of emoji by a recipe, beside the caption of the nearest picture, on a held-out fifth.

The pictures are those of Noto Emoji, 32 × 32 pixels cut from one sheet, and a caption is the
emoji's name in lower case. Skin tones and genders of one emoji are one group and stay on one side
(data.group). Figures are those of `regard evaluate`, and recall: is a picture's own caption the
likeliest of all held-out ones, and a caption's own picture? Pictures of skin tones are many copies
of few: figures are told of all held-out pictures, and of those without a tone alone, and intervals
draw whole groups. A captioner is asked twice, by beam search and for a consensus; and beside the
caption of the nearest picture stands the one that is most like those of the 16 nearest (Devlin et
al. 2015, arXiv:1505.04467). Of several seeds there is one more row, of what they say together.

    python benchmarks/captions.py --data DIR [--rows nearest,transformer] [--seeds 1] [--fifths]
        [--folds 0] [--jobs 1] [--set train.steps=300] [--device cuda] [--no-recall]
        [--keep FOLDER] [--json FILE]

With `--fifths` not one fifth of the groups is held out but each in turn, the recipe's own first, by
five runs a row; recall is told of the recipe's. `--folds 4` is for choosing settings: the recipe's
fifth is taken away, and the groups that are left are tested once each, by four runs a row.
`--prepare FILE.npz` only cuts the sheet, for `regard train recipes/emoji.toml FILE.npz`.
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
import torch

from regard.api import held_out, load_translator, plan, train
from regard.data.images import digest
from regard.data.shards import Shard
from regard.data.splits import deal, hashes, together
from regard.decoding import MinimumBayesRisk
from regard.decoding.mbr import similarity
from regard.evaluation.estimates import BootstrapEstimate
from regard.evaluation.translation import Sentence, measure_translation, recall, score_translations
from regard.models import nearest_caption
from regard.pipelines.translator import Translator
from regard.training.progress import Reporter

RECIPE = Path(__file__).parent.parent / "recipes" / "emoji.toml"
HELD_OUT = 0.2  # of the groups
NEAR = 16  # pictures whose captions are compared
TOGETHER = 1536  # rows decoded at once
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


Known = dict[str, tuple[str, bool]]  # of a picture's digest: its group, and has it a skin tone?


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


def prepare(data: Path, out: Path) -> Known:
    """Cut the sheet into `out`, and tell by their digests what pictures are."""
    from PIL import Image

    folder = data / "captions" / "noto_emoji"
    with Image.open(folder / "sheet_google_32_256c.png") as sheet:
        whole = sheet.convert("RGBA")
        white = Image.new("RGBA", whole.size, (255, 255, 255, 255))
        pixels = np.array(Image.alpha_composite(white, whole).convert("RGB"))
    document = json.loads((folder / "emoji.json").read_text(encoding="utf-8"))
    images, captions, groups, known = [], [], [], Known()
    for name, group, toned, x, y in entries(document):
        top, left = y * CELL + 1, x * CELL + 1
        image = pixels[top : top + SIDE, left : left + SIDE]
        images.append(image)
        captions.append(name)
        groups.append(group)
        known.setdefault(digest(image), (group, toned))
    np.savez_compressed(
        out, images=np.stack(images), captions=np.array(captions), group=np.array(groups)
    )
    return known


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
    """One run of one row, and the keys that say what it holds out."""

    row: str
    seed: int
    run: Path
    data: Path
    sides: tuple[str, ...]


@dataclass(frozen=True)
class Done:
    """What a run said of each held-out picture, by how it was asked, and what these are; what it
    recalled; its seconds.
    """

    said: dict[str, tuple[Sentence, ...]]
    known: tuple[tuple[str, bool], ...]
    recalled: dict[str, BootstrapEstimate]
    seconds: float


def parts_of(path: Path, options: argparse.Namespace) -> list[tuple[Path, tuple[str, ...]]]:
    """The runs of a row: what each reads, and the keys that say what it holds out."""
    if options.fifths:  # of which `data.test_fraction` holds out the last
        return [(path, ("data.folds=5", f"data.fold={k}")) for k in (4, 0, 1, 2, 3)]
    if not options.folds:
        return [(path, (f"data.test_fraction={HELD_OUT}",))]
    with np.load(path) as held:
        arrays = {name: held[name] for name in held.files}
    keys = hashes([digest(image) for image in arrays["images"]])
    keys = together(keys, hashes(arrays["group"].tolist()))
    kept = deal(keys, (1 - HELD_OUT, HELD_OUT)) == 0
    rest = path.with_name("rest.npz")
    np.savez_compressed(rest, **{name: array[kept] for name, array in arrays.items()})
    return [(rest, (f"data.folds={options.folds}", f"data.fold={k}")) for k in range(options.folds)]


def carried_out(job: Job, known: Known, options: argparse.Namespace) -> Done:
    """Train, and say something of every picture that was held out."""
    began, by_recipe = time.monotonic(), job.row == "transformer"
    if not (job.run / "regard.json").exists():
        sets = ["task=target", "data.group=group", "data.valid_fraction=0"]
        sets += ["data.input=images", "data.target=captions", f"train.seed={job.seed}"]
        sets += ["data.test_fraction=0", *job.sides]
        sets += options.sets if by_recipe else [f"model.name={job.row}"]
        recipe, lines = plan([RECIPE, job.data] if by_recipe else [job.data], assignments=sets)
        print(*lines, sep="\n", file=sys.stderr)
        train(recipe, job.run, resume=job.run.exists(), reporter=Reporter())
    seconds = time.monotonic() - began
    return dataclasses.replace(captioned([job.run], known, options), seconds=seconds)


def captioned(runs: Sequence[Path], known: Known, options: argparse.Namespace) -> Done:
    """What a run, or several together, say of every picture that was held out."""
    began = time.monotonic()
    translator = load_translator(*runs, device=options.device)
    _, shard = held_out(runs[0], translator)
    assert shard.source is not None
    picture = translator.source_tokenizer.picture  # type: ignore[attr-defined]
    own = tuple(known[digest(picture(shard.source.record(i)))] for i in range(shard.records))
    said = {"": measure_translation(translator, shard, batch_size=TOGETHER).made}
    if isinstance(translator.model, nearest_caption.NearestCaptioner):
        said[f", consensus of {NEAR}"] = neighbours(translator.model, translator, shard)
    else:
        consensus = MinimumBayesRisk(translator.tokenizer.decode)
        made = measure_translation(translator, shard, consensus, batch_size=TOGETHER).made
        said[", consensus"] = made
    recalled: dict[str, BootstrapEstimate] = {}
    own_fifth = not options.folds and (not options.fifths or runs[0].name.endswith("-fold-0"))
    if options.recall and own_fifth:
        recalled = recall(translator, some_of(shard, [i for i, x in enumerate(own) if not x[1]]))
    return Done(said, own, recalled, time.monotonic() - began)


def neighbours(
    model: nearest_caption.NearestCaptioner, translator: Translator, shard: Shard
) -> tuple[Sentence, ...]:
    """Of the captions of the nearest pictures, for each, the one most like the others."""
    assert shard.source is not None
    text, made = translator.tokenizer.decode, []
    captions = [text(caption.tolist()) for caption in model.captions]
    pictures = model.pictures.cpu().double()  # (N, F)
    sources = [nearest_caption.one(shard.source.record(i)) for i in range(shard.records)]
    asked = torch.cat([model.pixels(source) for source in sources]).double()  # (M, F)
    gaps = pictures.square().sum(1) - 2 * asked @ pictures.T  # (M, N), less |asked|²
    for number, order in enumerate(gaps.argsort(dim=1, stable=True)[:, :NEAR].tolist()):
        found = list(dict.fromkeys(captions[i] for i in order))
        told = found[int(similarity(found).mean(1).argmax())]
        made.append(Sentence("", text(shard.record(number)[1:-1]), told))
    return tuple(made)


def pooled(name: str, runs: Sequence[Done], recalled: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of one model, by how it was asked: its figures, by part, from all of its folds."""
    seconds = sum(run.seconds for run in runs) / len(runs)
    for way in runs[0].said:
        both = [pair for run in runs for pair in zip(run.said[way], run.known, strict=True)]
        estimates = {}
        for part, some in (("all", both), ("without tones", [x for x in both if not x[1][1]])):
            made, groups = [one for one, _ in some], [group for _, (group, _) in some]
            estimates[part] = score_translations(made, groups=groups)
        if recalled and not way:  # which is no matter of search
            estimates["without tones"] |= runs[0].recalled
        examples = [(x.reference, x.translation) for x, (_, toned) in both if not toned][:20]
        yield name + way, {"estimates": estimates, "examples": examples, "seconds": seconds}


def main() -> None:
    """Train, measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder of data sets")
    parser.add_argument("--rows", default="nearest,transformer")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--fifths", action="store_true", help="hold out each in turn")
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
        known = prepare(options.data, folder / "emoji.npz")
        parts = parts_of(folder / "emoji.npz", options)
        jobs: dict[str, list[Job]] = {}
        for row in options.rows.split(","):
            for seed in range(options.seeds if row == "transformer" else 1):
                for k, both in enumerate(parts):
                    run = folder / (f"{row}-{seed}" + (f"-fold-{k}" if len(parts) > 1 else ""))
                    jobs.setdefault(f"{row} {seed}", []).append(Job(row, seed, run, *both))
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(options.jobs, mp_context=spawn) as pool:
            runs = {
                name: [pool.submit(carried_out, job, known, options) for job in several]
                for name, several in jobs.items()
            }
            done = {name: [one.result() for one in row] for name, row in runs.items()}
            seeds = [row for name, row in jobs.items() if name.startswith("transformer")]
            if len(seeds) > 1:
                folds = [[job.run for job in fold] for fold in zip(*seeds, strict=True)]
                asked = [pool.submit(captioned, fold, known, options) for fold in folds]
                done["transformers together"] = [one.result() for one in asked]
    told = {"held out": slice(None)}
    if options.fifths:
        told = {"all fifths": slice(None), "the recipe's fifth": slice(1)}
    document = {}
    for title, some in told.items():
        print(f"\n== {title}")
        own = title != "all fifths"
        rows = dict(row for name, x in done.items() for row in pooled(name, x[some], own))
        document[title] = report(rows)
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def report(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Print the figures of every row, and the differences to the nearest pictures in pairs."""
    document: dict[str, Any] = {}
    bases = {name: row for name, row in rows.items() if name.startswith("nearest")}
    for name, row in rows.items():
        print(f"\n{name} ({row['seconds']:.0f} s)")
        told = document[name] = {"seconds": row["seconds"], "examples": row["examples"]}
        for part, estimates in row["estimates"].items():
            told[part] = {key: one.figure().to_json() for key, one in estimates.items()}
            for key, one in estimates.items():
                line = f"  {part:14} {key:10} {one.figure()}"
                for base, other in bases.items():
                    if name not in bases and key in other["estimates"][part]:
                        gap = one.minus(other["estimates"][part][key])
                        told[part][f"{key} minus {base}"] = gap.to_json()
                        line += f"   {base} {gap}"
                print(line)
        for reference, made in row["examples"]:
            print(f"    {reference:44} {made}")
    return document


if __name__ == "__main__":
    main()
