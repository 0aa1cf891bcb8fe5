"""Captions of emoji by a recipe, against the caption of the nearest image, on a held-out fifth.

The images are those of Noto Emoji, 32 × 32 pixels cut from one sheet, and a caption is the emoji's
name in lower case. Skin tones and genders of one emoji are one group and stay in one split
(data.group). Metrics are those of `regard evaluate`, and recall: how often an image's own caption
is the most probable of all held-out captions, and the reverse. Images with skin tones are near
copies of each other: metrics are of all held-out images and of those without a tone, and the
bootstrap resamples whole groups. The captioner decodes by beam search and by minimum Bayes risk;
the baseline takes the caption of the nearest image, and the one most similar to those of the 16
nearest (Devlin et al. 2015, arXiv:1505.04467). Several seeds have one more row, their ensemble.

    python benchmarks/captions.py --data DIR [--rows nearest,transformer] [--seeds 1] [--fifths]
        [--folds 0] [--jobs 1] [--set train.steps=300] [--device cuda] [--no-recall]
        [--keep FOLDER] [--json FILE]

`--fifths` holds out each fifth of the groups in turn, the recipe's own first, by five runs per row;
recall is that of the recipe's fifth. `--folds 4` is for choosing settings: it leaves the recipe's
fifth out, and tests each of the other groups once, by four runs per row. `--prepare FILE.npz` only
cuts the sheet, for `regard train recipes/emoji.toml FILE.npz`.
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

from regard.api import load, train_recipe
from regard.data.shards import Shard
from regard.data.splits import assign_folds, hashes, merge_groups
from regard.decoding import MinimumBayesRisk
from regard.decoding.mbr import similarity
from regard.evaluation.bootstrap import BootstrapEstimate
from regard.evaluation.translation import (
    Sentence,
    measure_recall,
    measure_translation,
    score_translations,
)
from regard.modalities.images.files import hash_image
from regard.models import nearest_caption
from regard.pipelines.translator import Translator
from regard.planning import plan_recipe
from regard.training.progress import Reporter

RECIPE = Path(__file__).parent.parent / "recipes" / "emoji.toml"
HELD_OUT = 0.2  # of the groups
N_NEIGHBORS = 16  # images whose captions are compared
BATCH_SIZE = 1536  # rows decoded at once
SIDE, CELL = 32, 34  # pixels of an image, and of its cell with a border of one
TONES = {f"1F3F{c}" for c in "BCDEF"}
# Parts of a code for gender, direction or style alone, ...
LEFT_OUT = TONES | {"200D", "FE0F", "2640", "2642", "27A1"}
# ... and men, women, boys and girls as persons of unspecified gender.
SAME = {"1F468": "1F9D1", "1F469": "1F9D1", "1F466": "1F9D2", "1F467": "1F9D2"}
SAME |= {"1F474": "1F9D3", "1F475": "1F9D3", "1F934": "1F478", "1F936": "1F385", "1F57A": "1F483"}
PAIRS = {"1F46B": "hands", "1F46C": "hands", "1F46D": "hands", "1F9D1-1F91D-1F9D1": "hands"}
PAIRS |= {"1F48F": "kiss", "1F9D1-2764-1F48B-1F9D1": "kiss", "1F491": "love"}
PAIRS |= {"1F9D1-2764-1F9D1": "love", "1F9D1-1F384": "1F385", "1F46A": "family"}


Groups = dict[str, tuple[str, bool]]  # by an image's hash: its group, whether it has a skin tone


def group_of(code: str) -> str:
    """Return what the variants of an emoji have in common, from its code points."""
    parts = [SAME.get(part, part) for part in code.split("-") if part not in LEFT_OUT]
    common = "-".join(parts) or code  # a tone by itself
    family = re.fullmatch(r"1F9D1(-1F9D[12])+", common)
    return PAIRS.get(common, "family" if family else common)


def entries(document: list[dict[str, Any]]) -> Iterator[tuple[str, str, bool, int, int]]:
    """Caption, group, whether it has a skin tone, and column and row in the sheet."""
    for entry in document:
        name = " ".join(entry["name"].lower().split())
        for one in (entry, *entry.get("skin_variations", {}).values()):
            if one["has_img_google"]:
                toned = one is not entry
                yield name, group_of(entry["unified"]), toned, one["sheet_x"], one["sheet_y"]


def prepare(data: Path, out: Path) -> Groups:
    """Cut the sheet into `out`; return the group of each image by its hash."""
    from PIL import Image

    folder = data / "captions" / "noto_emoji"
    with Image.open(folder / "sheet_google_32_256c.png") as sheet:
        emoji = sheet.convert("RGBA")
        white = Image.new("RGBA", emoji.size, (255, 255, 255, 255))
        pixels = np.array(Image.alpha_composite(white, emoji).convert("RGB"))
    document = json.loads((folder / "emoji.json").read_text(encoding="utf-8"))
    images, captions, groups, by_hash = [], [], [], Groups()
    for name, group, toned, x, y in entries(document):
        top, left = y * CELL + 1, x * CELL + 1
        image = pixels[top : top + SIDE, left : left + SIDE]
        images.append(image)
        captions.append(name)
        groups.append(group)
        by_hash.setdefault(hash_image(image), (group, toned))
    np.savez_compressed(
        out, images=np.stack(images), captions=np.array(captions), group=np.array(groups)
    )
    return by_hash


def select(shard: Shard, chosen: list[int]) -> Shard:
    """Return the chosen pairs of a shard."""

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
    """One run of one row, and the recipe keys of its splits."""

    row: str
    seed: int
    run: Path
    data: Path
    splits: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """The captions of held-out images by decoding method, the groups of the images, recall, and
    seconds.
    """

    captions: dict[str, tuple[Sentence, ...]]
    groups: tuple[tuple[str, bool], ...]
    recall: dict[str, BootstrapEstimate]
    seconds: float


def parts_of(path: Path, options: argparse.Namespace) -> list[tuple[Path, tuple[str, ...]]]:
    """Return the runs of a row: the file each reads, and the recipe keys of its splits."""
    if options.fifths:  # of which `data.test_fraction` holds out the last
        return [(path, ("data.folds=5", f"data.fold={k}")) for k in (4, 0, 1, 2, 3)]
    if not options.folds:
        return [(path, (f"data.test_fraction={HELD_OUT}",))]
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    keys = hashes([hash_image(image) for image in arrays["images"]])
    keys = merge_groups(keys, hashes(arrays["group"].tolist()))
    remaining = assign_folds(keys, (1 - HELD_OUT, HELD_OUT)) == 0
    rest = path.with_name("rest.npz")
    np.savez_compressed(rest, **{name: array[remaining] for name, array in arrays.items()})
    return [(rest, (f"data.folds={options.folds}", f"data.fold={k}")) for k in range(options.folds)]


def train_and_caption(job: Job, by_hash: Groups, options: argparse.Namespace) -> Result:
    """Train a run and caption its held-out images."""
    began, by_recipe = time.monotonic(), job.row == "transformer"
    if not (job.run / "regard.json").exists():
        sets = ["task.name=target", "data.group=group", "data.valid_fraction=0"]
        sets += ["data.input=images", "data.target=captions", f"train.seed={job.seed}"]
        sets += ["data.test_fraction=0", *job.splits]
        sets += options.sets if by_recipe else [f"model.name={job.row}"]
        recipe, lines = plan_recipe(
            [RECIPE, job.data] if by_recipe else [job.data], assignments=sets
        )
        print(*lines, sep="\n", file=sys.stderr)
        train_recipe(recipe, job.run, resume=job.run.exists(), reporter=Reporter())
    seconds = time.monotonic() - began
    return dataclasses.replace(caption([job.run], by_hash, options), seconds=seconds)


def caption(runs: Sequence[Path], by_hash: Groups, options: argparse.Namespace) -> Result:
    """Caption the held-out images with a run, or with an ensemble of runs."""
    began = time.monotonic()
    translator = load(*runs, device=options.device)
    _, shard = translator.held_out()
    assert shard.source is not None
    decode = translator.source_tokenizer.decode_record
    records = [shard.source.record(i) for i in range(shard.records)]
    groups = tuple(by_hash[hash_image(decode(record))] for record in records)
    captions = {"": measure_translation(translator, shard, batch_size=BATCH_SIZE).sentences}
    if isinstance(translator.model, nearest_caption.NearestCaptioner):
        name = f", mbr of {N_NEIGHBORS}"
        captions[name] = neighbor_captions(translator.model, translator, shard)
    else:
        mbr = MinimumBayesRisk(translator.tokenizer.decode)
        report = measure_translation(translator, shard, mbr, batch_size=BATCH_SIZE)
        captions[", mbr"] = report.sentences
    recall: dict[str, BootstrapEstimate] = {}
    recipe_fifth = not options.folds and (not options.fifths or runs[0].name.endswith("-fold-0"))
    if options.recall and recipe_fifth:
        toneless = select(shard, [i for i, (_, toned) in enumerate(groups) if not toned])
        recall = measure_recall(translator.model, translator.tokenizer, toneless)
    return Result(captions, groups, recall, time.monotonic() - began)


def neighbor_captions(
    model: nearest_caption.NearestCaptioner, translator: Translator, shard: Shard
) -> tuple[Sentence, ...]:
    """Return, for each image, the caption of its neighbors that is most similar to the others."""
    assert shard.source is not None
    decode, sentences = translator.tokenizer.decode, []
    captions = [decode(caption.tolist()) for caption in model.captions]
    images = model.images.cpu().double()  # (N, F)
    sources = [nearest_caption.one_image(shard.source.record(i)) for i in range(shard.records)]
    queries = torch.cat([model.pixels(source) for source in sources]).double()  # (M, F)
    distances = images.square().sum(1) - 2 * queries @ images.T  # (M, N), less |query|²
    nearest = distances.argsort(dim=1, stable=True)[:, :N_NEIGHBORS].tolist()
    for number, neighbors in enumerate(nearest):
        candidates = list(dict.fromkeys(captions[i] for i in neighbors))
        best = candidates[int(similarity(candidates).mean(1).argmax())]
        sentences.append(Sentence("", decode(shard.record(number)[1:-1]), best))
    return tuple(sentences)


def pool(name: str, runs: Sequence[Result], recall: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of one model by decoding method: metrics over all of its folds."""
    seconds = sum(run.seconds for run in runs) / len(runs)
    for method in runs[0].captions:
        pairs = [
            pair for run in runs for pair in zip(run.captions[method], run.groups, strict=True)
        ]
        toneless = [(one, (group, toned)) for one, (group, toned) in pairs if not toned]
        estimates = {}
        for part, chosen in (("all", pairs), ("without tones", toneless)):
            texts = [x.translation for x, _ in chosen], [x.reference for x, _ in chosen]
            groups = [group for _, (group, _) in chosen]
            estimates[part] = score_translations(*texts, groups=groups)
        if recall and not method:  # recall does not depend on decoding
            estimates["without tones"] |= runs[0].recall
        examples = [(x.reference, x.translation) for x, _ in toneless][:20]
        yield name + method, {"estimates": estimates, "examples": examples, "seconds": seconds}


def main() -> None:
    """Train, measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder of data sets")
    parser.add_argument("--rows", default="nearest,transformer")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--fifths", action="store_true", help="hold out each fifth in turn")
    parser.add_argument(
        "--folds", type=int, default=0, help="cross-validate without the held-out fifth"
    )
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--no-recall", dest="recall", action="store_false")
    parser.add_argument("--keep", type=Path, help="folder in which runs stay and are used again")
    parser.add_argument("--prepare", type=Path, help="only cut the sheet into this .npz file")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.prepare:
        prepare(options.data, options.prepare)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        by_hash = prepare(options.data, folder / "emoji.npz")
        parts = parts_of(folder / "emoji.npz", options)
        jobs: dict[str, list[Job]] = {}
        for row in options.rows.split(","):
            for seed in range(options.seeds if row == "transformer" else 1):
                for k, part in enumerate(parts):
                    run = folder / (f"{row}-{seed}" + (f"-fold-{k}" if len(parts) > 1 else ""))
                    jobs.setdefault(f"{row} {seed}", []).append(Job(row, seed, run, *part))
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(options.jobs, mp_context=spawn) as executor:
            runs = {
                name: [executor.submit(train_and_caption, job, by_hash, options) for job in folds]
                for name, folds in jobs.items()
            }
            results = {name: [one.result() for one in row] for name, row in runs.items()}
            seeds = [row for name, row in jobs.items() if name.startswith("transformer")]
            if len(seeds) > 1:
                folds = [[job.run for job in fold] for fold in zip(*seeds, strict=True)]
                ensembles = [executor.submit(caption, fold, by_hash, options) for fold in folds]
                results["ensemble of transformers"] = [one.result() for one in ensembles]
    tables = {"held out": slice(None)}
    if options.fifths:
        tables = {"all fifths": slice(None), "the recipe's fifth": slice(1)}
    document = {}
    for title, part in tables.items():
        print(f"\n== {title}")
        recall = title != "all fifths"
        rows = dict(row for name, x in results.items() for row in pool(name, x[part], recall))
        document[title] = report(rows)
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def report(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Print the metrics of each row, and the paired differences from the nearest images."""
    document: dict[str, Any] = {}
    bases = {name: row for name, row in rows.items() if name.startswith("nearest")}
    for name, row in rows.items():
        print(f"\n{name} ({row['seconds']:.0f} s)")
        entry = document[name] = {"seconds": row["seconds"], "examples": row["examples"]}
        for part, estimates in row["estimates"].items():
            entry[part] = {key: one.metric().to_json() for key, one in estimates.items()}
            for key, one in estimates.items():
                line = f"  {part:14} {key:10} {one.metric()}"
                for base, other in bases.items():
                    if name not in bases and key in other["estimates"][part]:
                        gap = one.minus(other["estimates"][part][key])
                        entry[part][f"{key} minus {base}"] = gap.to_json()
                        line += f"   {base} {gap}"
                print(line)
        for reference, translation in row["examples"]:
            print(f"    {reference:44} {translation}")
    return document


if __name__ == "__main__":
    main()
