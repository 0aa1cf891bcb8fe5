"""Multi30k, English to German: the recipe, from scratch, by several seeds, on its three test sets.

In the published convention (lower-cased, tokenised as Moses does, 10,000 BPE, beam 5) the text is
prepared so that BLEU splits it at spaces; `--text cased` trains on the sentences as they are and
measures with sacrebleu's defaults. The printed signatures show which is which. The validation set
selects the weights, and nothing else is selected here. `--models` adds rows of other
models beside the recipe's; with more than one, BLEU is also reported by the length of sources,
and `--figure` plots it.

    python benchmarks/multi30k.py [--data DIR] [--seeds 3] [--text plain,cased] [--minutes 0]
        [--models transformer,rnn,rnn-attention] [--figure lengths.html] [--jobs 1]
        [--set train.lr=0.002] [--json FILE]
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PARTS = ("train", "val", "test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")
RECIPE = Path(__file__).parent.parent / "recipes" / "multi30k_en_de.toml"
BOUNDS = (8, 11, 14, 18)  # words of a source that part short sentences from longer ones
REGARD = [sys.executable, "-m", "regard"]


def prepare(data: Path, folder: Path, text: str) -> None:
    """The sentences of all parts in `folder`, as they are (cased) or as the literature has them."""
    folder.mkdir()
    for side in ("en", "de"):
        change = str
        if text == "plain":
            from sacremoses import MosesPunctNormalizer, MosesTokenizer

            tokenizer, normalizer = MosesTokenizer(side), MosesPunctNormalizer(side)

            def change(line: str, tokenizer: Any = tokenizer, normalizer: Any = normalizer) -> str:
                line = normalizer.normalize(line.lower())
                return str(tokenizer.tokenize(line, return_str=True, escape=False))

        for part in PARTS:
            with gzip.open(data / "multi30k" / f"{part}.{side}.gz", "rt", encoding="utf-8") as file:
                lines = [change(line.rstrip("\n")) for line in file]
            (folder / f"{part}.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Job:
    """One model to train and measure."""

    model: str
    text: str
    seed: int

    @property
    def name(self) -> str:
        """Of its run folder."""
        return f"{self.text}-{self.model}-{self.seed}"


def run(job: Job, folder: Path, minutes: float, assignments: Sequence[str]) -> dict[str, Any]:
    """Train, then translate every part but the training set; return metrics by part."""
    files, out = folder / job.text, folder / job.name
    valid = json.dumps([str(files / "val.en"), str(files / "val.de")])
    sets = [f"data.valid={valid}", f"train.seed={job.seed}", *assignments]
    base = [str(files / "train.en"), str(files / "train.de"), "--out", str(out)]
    if job.model == "transformer" and not minutes:
        base = [str(RECIPE), *base]
    else:  # as large as suits the data
        sets += ["data.test_fraction=0"]
        base += ["--tokenizer", "bpe", "--vocab-size", "10000"]
        base += ["--model", job.model, "--minutes", str(minutes or 3)]
    began = time.perf_counter()
    run_command([*REGARD, "train", *base, *(word for one in sets for word in ("--set", one))])
    found: dict[str, Any] = {"seconds": round(time.perf_counter() - began, 1)}
    options = ["--lowercase", "--tokenize", "none"] if job.text == "plain" else []
    for part in PARTS[1:]:
        pair = [str(files / f"{part}.{side}") for side in ("en", "de")]
        document = json.loads(
            run_command([*REGARD, "evaluate", str(out), *pair, *options, "--json"])
        )
        found[part] = {k: document["metrics"][k] for k in ("bleu", "chrf", "exact")}
        found["signature"] = document["signatures"]["bleu"]
    return found


def run_command(command: Sequence[str]) -> str:
    """Return what a command prints; it must succeed."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def by_length(folder: Path, jobs: Sequence[Job]) -> dict[str, Any]:
    """BLEU of each model on the sources of each length, all test sets together."""
    from regard.evaluation.translation import score_translations

    files = folder / jobs[0].text
    sources, references = (
        [line for part in PARTS[2:] for line in lines_of(files / f"{part}.{side}")]
        for side in ("en", "de")
    )
    bounds = [0, *BOUNDS, max(len(line.split()) for line in sources)]
    found: dict[str, Any] = {}
    for job in jobs:
        translations: list[str] = []
        for part in PARTS[2:]:
            command = ["translate", str(folder / job.name), str(files / f"{part}.en")]
            translations += run_command([*REGARD, *command]).splitlines()
        rows = {}
        for low, high in itertools.pairwise(bounds):
            chosen = [i for i, line in enumerate(sources) if low < len(line.split()) <= high]
            bleu = score_translations(
                [translations[i] for i in chosen],
                [references[i] for i in chosen],
                tokenize="none",
                lowercase=True,
            )["bleu"].metric()
            rows[f"{low + 1}–{high}"] = bleu.to_json() | {"sentences": len(chosen)}
        found[job.model] = rows
    return found


def draw(found: dict[str, Any], path: Path) -> None:
    """BLEU against the length of sources, a line for each model, as a page."""
    from regard.look.page import Lines, Page

    middles = {name: [middle(key) for key in rows] for name, rows in found.items()}
    page = Page("BLEU by length of the source", "Multi30k, English to German, three test sets")
    page.section("", "A bottleneck forgets long sentences; attention looks them up.")
    page.add(
        Lines(
            series=[
                (name, middles[name], [row["value"] for row in rows.values()])
                for name, rows in found.items()
            ],
            bands={
                name: ([r["low"] for r in rows.values()], [r["high"] for r in rows.values()])
                for name, rows in found.items()
            },
            x_label="words of the source",
            y_label="BLEU",
            title="BLEU by length, with 95% intervals",
        )
    )
    print(page.write(path))


def middle(lengths: str) -> float:
    """Of a stretch of lengths as the tables name it."""
    low, high = map(int, lengths.split("–"))
    return (low + high) / 2


def lines_of(path: Path) -> list[str]:
    """The lines of a file."""
    return path.read_text(encoding="utf-8").splitlines()


def table(results: dict[str, Any]) -> str:
    """Mean ± standard deviation over seeds, a row for each text and model."""
    rows = [f"| text, model | {' | '.join(PARTS[1:])} | seconds |", "|---" * (len(PARTS) + 1) + "|"]
    for name in sorted({job.rsplit("-", 1)[0] for job in results if "-" in job}):
        seeds = [found for job, found in results.items() if job.rsplit("-", 1)[0] == name]
        cells = [spread([seed[part]["bleu"]["value"] for seed in seeds]) for part in PARTS[1:]]
        rows.append(f"| {name} | {' | '.join(cells)} | {max(s['seconds'] for s in seeds):.0f} |")
    return "\n".join(rows)


def spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation."""
    deviation = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{deviation}"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--text", default="plain,cased")
    parser.add_argument("--models", default="transformer")
    parser.add_argument("--minutes", type=float, default=0.0, help="instead of the recipe's steps")
    parser.add_argument("--jobs", type=int, default=1, help="trained side by side")
    parser.add_argument("--set", action="append", default=[], help="overrides of the recipe")
    parser.add_argument("--figure", type=Path, help="an HTML file: BLEU by length")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    models = args.models.split(",")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for text in args.text.split(","):
            prepare(args.data, folder / text, text)
        jobs = [
            Job(model, text, seed)
            for text in args.text.split(",")
            for model in models
            for seed in range(args.seeds)
        ]
        with ThreadPoolExecutor(args.jobs) as pool:
            found = list(pool.map(lambda job: run(job, folder, args.minutes, args.set), jobs))
        results: dict[str, Any] = {job.name: one for job, one in zip(jobs, found, strict=True)}
        print(table(results))
        print(
            "\n".join(
                sorted(
                    {
                        f"{job.text}: {one['signature']}"
                        for job, one in zip(jobs, found, strict=True)
                    }
                )
            )
        )
        if len(models) > 1:
            first = [job for job in jobs if job.seed == 0 and job.text == "plain"]
            results["length"] = by_length(folder, first)
            print(json.dumps(results["length"], ensure_ascii=False, indent=1))
            if args.figure:
                draw(results["length"], args.figure)
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
