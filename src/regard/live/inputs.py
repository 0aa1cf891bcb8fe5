"""The parts of tokenizers and featurizers: how a text or a drawing becomes tokens in the page.

What is drawn with a mouse must look like the images of training. `measure_ink` finds out how these
fill their frame: how large the ink is, whether its center of mass or its box is in the middle, how
wide and how dark a stroke is, and whether ink is dark on light.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import UserError
from regard.evaluation.eval_data import open_corpus
from regard.live.parts import LivePart, assets
from regard.pipelines import Pipeline
from regard.tokenizers import Patches, Tokenizer
from regard.tokenizers.biology import BASES, Kmers, Letters
from regard.tokenizers.smiles import PIECE, Smiles
from regard.tokenizers.text import ALPHABET, BPE, WHITESPACE, Bytes, Characters, Words
from regard.tokenizers.tokenizer import NativeTokenizer

Floats = NDArray[np.float64]
ANY = r"[\s\S]"  # the pattern of a character
MEASURED = 500  # images
MNIST = {  # where no image can be measured
    "inverted": False,
    "dark": 255.0,
    "box": 20 / 28,
    "mass": True,
    "center": [0.5, 0.5],
    "stroke": 0.1,
}
INK = 0.25  # of the darkest value: pixels above it belong to the box of the ink


def token_names(tokenizer: Tokenizer) -> list[str]:
    """Return how each token is displayed."""
    return [tokenizer.text(i) for i in range(tokenizer.vocab_size)]


def text_part(tokenizer: Tokenizer, program: str, **config: Any) -> LivePart:
    """Return the part of a tokenizer of text; UserError for one that the script cannot follow."""
    names = {"names": token_names(tokenizer), "unk": tokenizer.unk, "end": tokenizer.end}
    return LivePart(program, names | config, assets(program))


def characters_part(tokenizer: Characters, pipeline: Pipeline) -> LivePart:
    """Return a table of characters."""
    return pieces_part(tokenizer, ANY)


def pieces_part(
    tokenizer: NativeTokenizer, pattern: str, reads: Mapping[str, str] = MappingProxyType({})
) -> LivePart:
    """Return the part of a vocabulary of the pieces that a regular expression finds; `reads` are
    characters that are read as others.
    """
    config = {"tokens": tokenizer.tokens, "reads": dict(reads), "pattern": pattern}
    return text_part(tokenizer, "characters", **config)


def letters_part(tokenizer: Letters, pipeline: Pipeline) -> LivePart:
    """Return an alphabet, which reads some characters as others."""
    return pieces_part(tokenizer, ANY, tokenizer.alphabet.reads)


def kmers_part(tokenizer: Kmers, pipeline: Pipeline) -> LivePart:
    """Return words of bases side by side."""
    if tokenizer.overlap:
        raise UserError("live pages read words of bases side by side, and this model's overlap")
    bases = tokenizer.alphabet.letters[:BASES]
    return pieces_part(tokenizer, f"[{bases}]{{{tokenizer.k}}}|{ANY}", tokenizer.alphabet.reads)


def smiles_part(tokenizer: Smiles, pipeline: Pipeline) -> LivePart:
    """Return atoms, ring closures and signs."""
    return pieces_part(tokenizer, PIECE)


def bytes_part(tokenizer: Bytes, pipeline: Pipeline) -> LivePart:
    """Return the bytes of UTF-8, none of them merged."""
    return bpe_like(tokenizer, [], split=False)


def words_part(tokenizer: Words, pipeline: Pipeline) -> LivePart:
    """Return words with the whitespace before them."""
    return text_part(tokenizer, "words", tokens=tokenizer.tokens, whitespace=WHITESPACE)


def bpe_part(tokenizer: BPE, pipeline: Pipeline) -> LivePart:
    """Return bytes that are merged within words."""
    return bpe_like(tokenizer, tokenizer.merges, split=True)


def bpe_like(tokenizer: Bytes | BPE, merges: Sequence[Sequence[str]], *, split: bool) -> LivePart:
    """Return the part of a vocabulary that is spelled in the byte alphabet."""
    return text_part(
        tokenizer,
        "bpe",
        tokens=tokenizer.tokens,
        merges=merges,
        alphabet="".join(ALPHABET),
        split=split,
    )


def patches_part(tokenizer: Patches, pipeline: Pipeline) -> LivePart:
    """Return a canvas, and how drawings become like the images of training."""
    if tokenizer.channels != 1:
        raise UserError(
            f"live pages read drawings in gray, and this model images of {tokenizer.channels} "
            "channels; regard look without --live shows it"
        )
    size = {"height": tokenizer.height, "width": tokenizer.width, "patch": tokenizer.patch}
    ink = measure_ink([image[..., 0].astype(np.float64) for image in training_images(pipeline)])
    return LivePart("patches", size | {"ink": ink}, assets("drawing"))


def training_images(pipeline: Pipeline) -> list[Any]:
    """Return images that the model was trained on; none where the run does not hold its data."""
    if pipeline.run is None:
        return []
    try:
        shard = open_corpus(pipeline.run.path).train
    except UserError:
        return []
    numbers = range(min(shard.records, MEASURED))
    return [pipeline.source_tokenizer.decode_record(shard.record(i)) for i in numbers]


def measure_ink(images: Sequence[Floats]) -> dict[str, Any]:
    """Return how images (height, width) of drawings fill their frame."""
    images = [image for image in images if np.ptp(image) > 0]
    if not images:
        return MNIST
    borders = [np.concatenate([i[0], i[-1], i[:, 0], i[:, -1]]).mean() for i in images]
    inverted = float(np.mean(borders)) > float(np.mean([image.mean() for image in images]))
    inks = [image.max() - image if inverted else image - image.min() for image in images]
    dark = float(np.median([ink.max() for ink in inks]))
    boxes = np.array([ink_box(ink) for ink in inks])  # (R, 4): top, bottom, left, right
    extents = np.stack([boxes[:, 1] - boxes[:, 0], boxes[:, 3] - boxes[:, 2]], 1)  # (R, 2)
    frame = np.array([max(ink.shape) for ink in inks])
    middles = np.stack([boxes[:, :2].mean(1), boxes[:, 2:].mean(1)], 1)
    masses = np.array([center_of_mass(ink) for ink in inks])
    by_mass = masses.std(0).sum() < middles.std(0).sum()
    center = (masses if by_mass else middles).mean(0) / np.array(inks[0].shape)
    return {
        "inverted": inverted,
        "dark": dark,
        "box": float(np.median(extents.max(1) / frame)),
        "mass": bool(by_mass),
        "center": center.tolist(),
        "stroke": float(np.median([stroke_width(ink / ink.max()) for ink in inks] / frame)),
    }


def ink_box(ink: Floats) -> tuple[int, int, int, int]:
    """Return top, bottom, left and right of the pixels with ink."""
    rows, columns = (np.flatnonzero((ink > INK * ink.max()).any(axis)) for axis in (1, 0))
    return int(rows[0]), int(rows[-1]) + 1, int(columns[0]), int(columns[-1]) + 1


def center_of_mass(ink: Floats) -> tuple[float, float]:
    """Return the row and column of the center of mass, in pixels from the corner."""
    rows, columns = (ink.sum(axis) for axis in (1, 0))
    at = [float(sums @ (np.arange(len(sums)) + 0.5) / ink.sum()) for sums in (rows, columns)]
    return at[0], at[1]


def stroke_width(ink: Floats) -> float:
    """Return the width of strokes in pixels: their area over half of their outline."""
    padded = np.pad(ink, 1)
    down, across = np.diff(padded, axis=0)[:, 1:], np.diff(padded, axis=1)[1:]
    outline = np.hypot(down, across).sum()
    return float(2 * ink.sum() / max(outline, 1e-9))
