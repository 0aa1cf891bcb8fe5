"""Images found by their captions, and captions by their images, on a held-out fifth of the emoji.

The images are those of Noto Emoji, 32 × 32 pixels, and a caption is the emoji's name. Skin tones
and genders of one emoji are one group and stay in one split, as in `captions.py`. Printed are
recall@1, 5 and 10 in both directions among all different images and captions of the test split,
with 95% intervals (the bootstrap draws images with all their captions), for

- chance: a random order;
- cca: canonical correlations of colour histograms and bags of tokens, the baseline;
- transformer: two small encoders by default settings, trained from nothing by the loss of CLIP;

and the difference between the last two, in pairs. The default takes at most three minutes on one
core.

    python benchmarks/contrastive.py --data DIR [--rows chance,cca,transformer] [--steps 300]
        [--set train.seed=1] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from captions import HELD_OUT, prepare

from regard.api import train_recipe
from regard.evaluation.retrieval import CUTOFFS, RetrievalResult, load_retrieval
from regard.planning import plan_recipe
from regard.training.progress import Reporter

COLUMNS = [(f"{found}_recall_{k}", f"{found}@{k}") for found in ("text", "source") for k in CUTOFFS]


def train(row: str, data: Path, folder: Path, options: argparse.Namespace) -> RetrievalResult:
    """Train a row; return its recall on the test split."""
    keys = ["task.name=contrastive", "data.target=captions", "data.group=group"]
    keys += [f"data.test_fraction={HELD_OUT}", f"model.name={row}"]
    keys += [f"train.steps={options.steps}", *options.sets]
    recipe, lines = plan_recipe([data], assignments=keys)
    print(*lines, sep="\n", file=sys.stderr)
    train_recipe(recipe, folder / row, reporter=Reporter())
    return load_retrieval(folder / row)


def table(results: dict[str, RetrievalResult]) -> list[str]:
    """Return the lines of a Markdown table, a row for each model."""
    lines = [
        f"| row | mean recall | {' | '.join(title for _, title in COLUMNS)} |",
        "|---|" + "---|" * (1 + len(COLUMNS)),
    ]
    for row, result in results.items():
        metrics = result.metrics()
        cells = [f"{100 * metrics[name].value:.1f}" for name, _ in COLUMNS]
        mean = metrics["mean_recall"]
        interval = f"[{100 * mean.low:.1f}, {100 * mean.high:.1f}]"
        lines.append(f"| {row} | {100 * mean.value:.1f} {interval} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n    python")[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of data sets")
    parser.add_argument("--rows", default="chance,cca,transformer")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results: dict[str, RetrievalResult] = {}
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(options.data, folder / "emoji.npz")
        for row in options.rows.split(","):
            began = time.monotonic()
            results[row] = train(row, folder / "emoji.npz", folder, options)
            seconds[row] = time.monotonic() - began
    some = next(iter(results.values()))
    print(f"{some.records:,} pairs of {len(some.of_sources):,} different images, per cent")
    print(*table(results), sep="\n")
    print("seconds: " + ", ".join(f"{row} {value:.0f}" for row, value in seconds.items()))
    if {"cca", "transformer"} <= set(results):
        one, two = (results[row].estimates["mean_recall"] for row in ("transformer", "cca"))
        print(f"transformer − cca, mean recall: {one.minus(two)}: {one.verdict(two)}")
    if options.json:
        document = {
            row: {n: m.to_json() for n, m in result.metrics().items()} | {"seconds": seconds[row]}
            for row, result in results.items()
        }
        options.json.write_text(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
