"""The demonstration of images: handwritten digits of 8 × 8 pixels, which scikit-learn brings along.

Counting, a line through the pixels, filters and attention over patches, on the same split; and a
page on which one can see where attention looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.api import Examiner
from regard.data.shards import Shard
from regard.demo import demo_answers
from regard.errors import missing_extra
from regard.tokens import Patches
from regard.train.progress import Reporter

MODELS = ("majority", "logistic", "cnn", "transformer")
TRANSFORMER = {"n_layers": 4, "d_model": 64, "dropout": 0.1}  # what learns most in a minute
STEPS = ("data.test_fraction=0.2", "train.average=3", "train.batch_tokens=1088")
SHADES = " .:-=+*#%@"
SHOWN = 4  # wrong answers that are drawn
WHITE = 16  # of scikit-learn's digits


def digits() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """(1797, 8, 8) bytes and the digit of each (Alpaydin & Kaynak 1998)."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise missing_extra("scikit-learn", "science") from None
    found = load_digits()
    return np.round(found.images * (255 / WHITE)).astype(np.uint8), found.target.astype(np.int64)


def save_digits(path: Path) -> Path:
    """The digits as a file that `regard train` reads."""
    images, labels = digits()
    np.savez_compressed(path, images=images, digit=labels)
    return path


def demo_digits(
    out: str | Path,
    minutes: float,
    *,
    models: Sequence[str] = MODELS,
    assignments: Sequence[str] = (),
    reporter: Reporter | None = None,
) -> Path:
    """Train on the digits, print the table, draw what the Transformer got wrong, and write a page
    about one picture; the folder of all of it.
    """
    digits()  # what is missing is said before anything is made
    return demo_answers(
        out,
        lambda folder: save_digits(folder / "digits.npz"),
        draw_wrong,
        models=models,
        minutes=minutes,
        transformer=TRANSFORMER,
        assignments=[*STEPS, *assignments],
        reporter=reporter or Reporter(),
    )


def draw_wrong(examiner: Examiner, shard: Shard, said: NDArray[Any], wrong: NDArray[Any]) -> None:
    """Digits that were read wrong."""
    tokenizer, classes = examiner.tokenizer, examiner.targets.classes[0]
    assert isinstance(tokenizer, Patches) and shard.targets is not None
    if len(wrong):
        print(f"wrong in {len(wrong):,} of {shard.records:,} that it has not seen:")
    drawn = [tokenizer.picture(shard.record(int(i)))[..., 0] for i in wrong[:SHOWN]]
    told = [f"{classes[shard.targets[i]]} read as {classes[said[i]]}" for i in wrong[:SHOWN]]
    for line in side_by_side(drawn, told):
        print(line)


def side_by_side(pictures: Sequence[NDArray[np.uint8]], names: Sequence[str]) -> list[str]:
    """Pictures in characters, beside each other, with their names above."""
    if not pictures:
        return []
    wide = 2 * pictures[0].shape[1] + 4
    lines = ["".join(f"  {name:<{wide - 2}}" for name in names)]
    for y in range(pictures[0].shape[0]):
        parts = []
        for picture in pictures:
            row = "".join(2 * SHADES[int(v) * (len(SHADES) - 1) // 255] for v in picture[y])
            parts.append(f"  {row:<{wide - 2}}")
        lines.append("".join(parts))
    return lines
