"""Labels of images by recipes: ViT beside a CNN of the same recipe and a line through the pixels.

MNIST and a part of Fashion-MNIST with their own test sets, by seeds; scikit-learn's digits by five
folds, each image tested once. `labels.py` trains and reports.

    python benchmarks/images.py mnist fashion digits [--data DIR] [--rows transformer,cnn,logistic]
        [--seeds 3] [--jobs 1] [--set train.steps=300] [--keep FOLDER] [--json FILE]

`--larger RUN` measures a run trained on MNIST on its test images at 36 × 36 pixels and at 28 × 28:

    python benchmarks/images.py --larger RUN --data DIR [--side 36]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import labels
from labels import Set

CNN = ["--model", "cnn", "--set", "model.preset=residual"]


def idx(folder: str, train: str) -> object:
    """An IDX data set with a test set of its own."""

    def prepare(data: Path, into: Path) -> list[str]:
        at = data / "images" / folder
        images, targets = (
            at / f"{train}-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1")
        )
        return [
            str(images),
            "--target",
            str(targets),
            "--test",
            str(at / "t10k-images-idx3-ubyte.gz"),
        ]

    return prepare


def digits(data: Path, into: Path) -> list[str]:
    """The digits that come with scikit-learn."""
    from regard.demos import save_digits

    return [str(save_digits(into / "digits.npz"))]


SETS = {
    "mnist": Set(
        idx("mnist", "train"),  # type: ignore[arg-type]
        "accuracy",
        "99.2 small ViTs, 99.4 to 99.7 CNNs",
        seeds=1,
        bar="ViT 99.2, CNN 99.4",
        rows={"cnn": [*CNN, "--set", "model.d_model=128"]},
    ),
    "fashion": Set(
        idx("fashion_mnist_10k", "train10k"),  # type: ignore[arg-type]
        "accuracy",
        "CNNs on all 60,000: 91 to 94",
        seeds=3,
        bar="ViT 88, goal 89",
        rows={"cnn": [*CNN, "--set", "model.d_model=128"]},
    ),
    "digits": Set(
        digits,
        "accuracy",
        "98 to 99, support vector machines",
        folds=5,
        seeds=1,
        bar="98.5",
        rows={"cnn": CNN},
    ),
}


def larger(run: Path, data: Path, side: int) -> None:
    """Print the accuracy of a run on MNIST's test images as they are, and resized."""
    from regard.api import load
    from regard.data.inputs import InputReader
    from regard.evaluation.eval_data import labelled_from
    from regard.modalities.images import Images, ImagesConfig

    predictor = load(run, verb="predict", device="auto")
    test = data / "images/mnist/t10k-images-idx3-ubyte.gz"
    for pixels in (0, side):
        shard = labelled_from(
            [test],
            predictor.tokenizer,
            predictor.targets,
            Images(ImagesConfig(resize=pixels)),
            InputReader(),
        )
        accuracy = predictor.predict_shard(shard).metrics()["accuracy"]
        print(f"{pixels or 28} × {pixels or 28} pixels: accuracy {accuracy}")


def main() -> None:
    """Run the rows, or measure one run at another size."""
    if "--larger" not in sys.argv:
        labels.main(SETS, __doc__)
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--larger", type=Path, metavar="RUN")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--side", type=int, default=36)
    args = parser.parse_args()
    larger(args.larger, args.data, args.side)


if __name__ == "__main__":
    main()
