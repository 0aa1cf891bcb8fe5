"""Word vectors as text in the format of the word2vec program, which gensim and fastText read too: a
line with the number of words and of numbers in a vector, then a line for each word.

GloVe's files, which lack the first line, can be read as well. Numbers are written with so many
digits that every float32 comes back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.formats import MAX_DEFLATE_RATIO, decoded_lines
from regard.errors import UserError
from regard.interop import find_exporter, register_format
from regard.interop.hugging_face import new_folder
from regard.models.word2vec import ABSENT, CBOW, SkipGram, Vocabulary, Word2VecConfig, list_words
from regard.run import METADATA, WEIGHTS, weights, write_config
from regard.storage import atomic_write, write_json, write_tensors, write_text
from regard.tokenizers import TOKENIZER, load
from regard.tokenizers.text import PIECE, Words
from regard.tokenizers.tokenizer import SPECIALS

DIGITS = 9  # that tell any two float32 apart
MAX_WIDTH = 1 << 14  # numbers of a vector

Vectors = NDArray[np.float32]


def export_vec(run: Path, out: Path) -> dict[str, Any]:
    """Write the input vectors of a run; return `class`, `words`, `parameters` and `warnings`."""
    read_vectors, model = find_exporter("vec", run)
    words, vectors = read_vectors(run, model)
    write_vec(out, words, vectors)
    return {"class": "vec", "words": len(words), "parameters": vectors.size, "warnings": []}


@register_format("vec", CBOW, SkipGram)
def input_vectors(run: Path, model: Any) -> tuple[list[str], Vectors]:
    """Return the words of a model and their input vectors (R, D)."""
    return list_words(model, load(Path(run) / TOKENIZER)), model.inputs.detach().numpy()


def write_vec(path: Path, words: list[str], vectors: Vectors) -> None:
    if Path(path).is_dir():
        raise UserError(f"{path} is a folder; name the file to write")
    with atomic_write(Path(path)) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(f"{len(words)} {vectors.shape[1]}\n")
        for word, vector in zip(words, vectors.tolist(), strict=True):
            file.write(f"{word} {' '.join(f'{x:.{DIGITS}g}' for x in vector)}\n")


def import_vec(path: Path, out: Path) -> dict[str, Any]:
    """Write a run folder from a file of vectors: it has only input vectors, and so no loss."""
    words, vectors = read_vec(path)
    tokenizer = Words([f" {word}" for word in words])
    config = Word2VecConfig(d_model=vectors.shape[1], n_words=len(words), min_count=1)
    model = SkipGram(tokenizer.vocab_size, config)
    rows = np.concatenate([np.full(len(SPECIALS), ABSENT), np.arange(len(words))])
    model.set_vocabulary(Vocabulary(rows.astype(np.int64), np.zeros(len(words), np.int64)))
    with torch.no_grad():
        model.inputs.copy_(torch.from_numpy(vectors))
    with new_folder(out) as folder:
        tokenizer.save(folder / TOKENIZER)
        write_config(folder, "skipgram", model)
        write_tensors(folder / WEIGHTS, weights(model))
        metadata = {"imported_from": "vec", "folder": path.name, "parameters": vectors.size}
        write_json(folder / METADATA, metadata)
        write_text(
            folder / "README.md",
            f"# Word vectors\n\n{len(words):,} words of {vectors.shape[1]} numbers, from "
            f"{path.name}. `regard look .` and `regard embed . FILE` use them.\n",
        )
    return {"class": "vec", "words": len(words), "parameters": vectors.size}


def read_vec(path: Path) -> tuple[list[str], Vectors]:
    """Return the words of a file and their vectors (R, D); an error names the line."""
    path = Path(path)
    lines_of_words: dict[str, int] = {}
    vectors: list[Vectors] = []
    count: int | None = None
    width = 0
    for index, (number, line) in enumerate(read_lines(path)):
        if not index and re.fullmatch("[0-9]{1,12} [0-9]{1,12} ?", line):
            count, width = map(int, line.split())
            check_header(path, count, width)
            continue
        width = width or len(line.split()) - 1
        word, vector = parse_line(f"{path}, line {number}", line, width)
        if word in lines_of_words:
            first = lines_of_words[word]
            raise UserError(f"{path}, line {number}: {word!r} is on line {first} already")
        lines_of_words[word] = number
        vectors.append(vector)
    if count is not None and count != len(vectors):
        raise UserError(f"{path} promises {count:,} words and has {len(vectors):,}")
    if len(vectors) < 2:
        raise UserError(f"{path} has {len(vectors)} vectors; two are needed at least")
    return list(lines_of_words), np.stack(vectors)


def parse_line(where: str, line: str, width: int) -> tuple[str, Vectors]:
    if not 1 <= width <= MAX_WIDTH:
        raise UserError(f"{where}: expected a word and its numbers: {line[:60]!r}")
    word, *numbers = line.rstrip(" ").rsplit(" ", width)
    try:
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
            vector = np.array(numbers, np.float32)
    except ValueError:
        vector = np.empty(0, np.float32)
    if len(vector) != width or not np.isfinite(vector).all():
        raise UserError(f"{where}: expected a word and {width} numbers: {line[:60]!r}")
    if not word or not re.fullmatch(PIECE, " " + word):
        raise UserError(f"{where}: {word[:60]!r} is not one word")
    return word, vector


def check_header(path: Path, words: int, width: int) -> None:
    """Refuse a first line that promises more than the file can hold: a number takes two bytes."""
    with open(path, "rb") as file:
        compressed = file.read(2) == b"\x1f\x8b"
    if words * 2 * width > path.stat().st_size * (MAX_DEFLATE_RATIO if compressed else 1):
        raise UserError(
            f"{path} promises {words:,} words of {width:,} numbers, more than the file can hold"
        )


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file, compressed or not, with their numbers; empty ones are skipped."""
    for block in decoded_lines(path):
        for index, text in enumerate(block.texts):
            if index in block.bad:
                raise UserError(
                    f"{path}, line {block.first + index} is not UTF-8 text; files of the binary "
                    "format are not read"
                )
            if text:
                yield block.first + index, text
