"""Word vectors as text, in the format of the authors' program, which gensim and fastText read too:
a line with how many words and numbers there are, then a line for each word.

GloVe's files lack the first line, and are read as well. Numbers are written so that every float32
comes back as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.archives import DEFLATED
from regard.data.formats import decoded_lines
from regard.errors import UserError
from regard.interop.hugging_face import new_folder
from regard.models.word2vec import ABSENT, SkipGram, Vocabulary, Word2VecConfig, words_of
from regard.run import (
    FACTS,
    TOKENIZER,
    WEIGHTS,
    described,
    load_model,
    open_run,
    replacing,
    weights,
    write_config,
    write_json,
    write_tensors,
    write_text,
)
from regard.tokenizers import load as load_tokenizer
from regard.tokenizers.tokenizer import SPECIALS
from regard.tokenizers.words import PIECE, Words

DIGITS = 9  # that tell any two float32 apart
WIDEST = 1 << 14  # numbers of a vector


def export_vec(run: Path, out: Path) -> dict[str, Any]:
    """Write the input vectors of a run; `class`, `words` and `parameters` of what was written."""
    folder = open_run(run)
    task = described(folder)[0]
    if task != "vectors":
        raise UserError(
            f"{run} is of task {task}; --to vec needs word vectors, as "
            "`regard train FILE --model skipgram` makes"
        )
    model = load_model(folder)
    words = words_of(model, load_tokenizer(folder / TOKENIZER))
    write_vec(out, words, model.inputs.detach().numpy())
    size = model.inputs.numel()
    return {"class": "vec", "words": len(words), "parameters": size, "warnings": []}


def write_vec(path: Path, words: list[str], vectors: NDArray[np.float32]) -> None:
    """Write words and their vectors (R, D)."""
    if Path(path).is_dir():
        raise UserError(f"{path} is a folder; name the file to write")
    with replacing(Path(path)) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(f"{len(words)} {vectors.shape[1]}\n")
        for word, vector in zip(words, vectors.tolist(), strict=True):
            file.write(f"{word} {' '.join(f'{x:.{DIGITS}g}' for x in vector)}\n")


def import_vec(path: Path, out: Path) -> dict[str, Any]:
    """Write a run folder from a file of vectors: it has input vectors alone, and so no loss."""
    words, vectors = read_vec(path)
    tokenizer = Words([f" {word}" for word in words])
    config = Word2VecConfig(d_model=vectors.shape[1], n_words=len(words), min_count=1)
    model = SkipGram(tokenizer.vocab_size, config)
    rows = np.concatenate([np.full(len(SPECIALS), ABSENT), np.arange(len(words))])
    model.take(Vocabulary(rows.astype(np.int64), np.zeros(len(words), np.int64)))
    with torch.no_grad():
        model.inputs.copy_(torch.from_numpy(vectors))
    size = model.inputs.numel()
    with new_folder(out) as into:
        tokenizer.save(into / TOKENIZER)
        write_config(into, "skipgram", model)
        write_tensors(into / WEIGHTS, weights(model))
        facts = {"imported_from": "vec", "folder": path.name, "parameters": size}
        write_json(into / FACTS, facts)
        write_text(
            into / "README.md",
            f"# Word vectors\n\n{len(words):,} words of {vectors.shape[1]} numbers, from "
            f"{path.name}. `regard look .` and `regard embed . FILE` use them.\n",
        )
    return {"class": "vec", "words": len(words), "parameters": size}


def read_vec(path: Path) -> tuple[list[str], NDArray[np.float32]]:
    """The words of a file and their vectors (R, D); what is wrong with it is told by the line."""
    path = Path(path)
    words: dict[str, int] = {}
    found: list[NDArray[np.float32]] = []
    promised: tuple[int, int] | None = None
    width = 0
    for place, (number, line) in enumerate(lines_of(path)):
        if not place and re.fullmatch("[0-9]{1,12} [0-9]{1,12} ?", line):
            promised = int(line.split()[0]), int(line.split()[1])
            width = promised[1]
            check_promise(path, *promised)
            continue
        width = width or len(line.split()) - 1
        if not 1 <= width <= WIDEST:
            raise UserError(
                f"{path}, line {number}: expected a word and its numbers: {line[:60]!r}"
            )
        word, vector = one_of(path, number, line, width)
        if word in words:
            raise UserError(f"{path}, line {number}: {word!r} stands on line {words[word]} already")
        words[word] = number
        found.append(vector)
    if promised is not None and promised[0] != len(found):
        raise UserError(f"{path} promises {promised[0]:,} words and has {len(found):,}")
    if len(found) < 2:
        raise UserError(f"{path} has {len(found)} vectors; two are needed at least")
    return list(words), np.stack(found)


def one_of(path: Path, number: int, line: str, width: int) -> tuple[str, NDArray[np.float32]]:
    """The word of a line, and its vector (D,)."""
    parts = line.rstrip(" ").rsplit(" ", width)
    try:
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
            vector = np.array(parts[1:], np.float32)
    except ValueError:
        vector = np.full(0, np.nan, np.float32)
    if len(parts) != width + 1 or len(vector) != width or not np.isfinite(vector).all():
        raise UserError(
            f"{path}, line {number}: expected a word and {width} numbers: {line[:60]!r}"
        )
    if not re.fullmatch(PIECE, " " + parts[0]) or not parts[0]:
        raise UserError(f"{path}, line {number}: {parts[0][:60]!r} is not one word")
    return parts[0], vector


def check_promise(path: Path, words: int, width: int) -> None:
    """Refuse a first line that says more than the file can hold: a number takes two bytes."""
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    if words * 2 * width > path.stat().st_size * (DEFLATED if packed else 1):
        raise UserError(
            f"{path} promises {words:,} words of {width:,} numbers, more than the file can hold"
        )


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file that are not empty, packed or not, with their numbers."""
    for block in decoded_lines(path):
        for place, text in enumerate(block.texts):
            number = block.first + place
            if place in block.bad:
                raise UserError(
                    f"{path}, line {number} is not UTF-8 text; files of the binary format are not "
                    "read"
                )
            if text:
                yield number, text
