"""Word vectors as text: what is written comes back bit for bit, what is damaged is refused."""

import gzip

import numpy as np
import pytest

from regard.errors import UserError
from regard.interop.word2vec_format import export_vec, import_vec, read_vec, write_vec
from regard.run import Run
from regard.tokenizers import load

WORDS = ["cat", "<S>", "naïve", "3.5", "…"]


@pytest.fixture
def vectors():
    numbers = np.random.default_rng(0).standard_normal((len(WORDS), 7)).astype(np.float32)
    numbers[0, :3] = [1e-30, -0.0, np.float32(1) / 3]
    return numbers


def test_vectors_come_back_bit_for_bit(tmp_path, vectors):
    write_vec(tmp_path / "words.vec", WORDS, vectors)
    words, again = read_vec(tmp_path / "words.vec")
    assert words == WORDS and again.tobytes() == vectors.tobytes()
    assert (tmp_path / "words.vec").read_text().startswith("5 7\ncat 1")


def test_import_then_export_is_the_identity(tmp_path, vectors):
    write_vec(tmp_path / "words.vec", WORDS, vectors)
    report = import_vec(tmp_path / "words.vec", tmp_path / "run")
    assert report == {"class": "vec", "words": 5, "parameters": 35}
    assert Run(tmp_path / "run").metadata["imported_from"] == "vec"
    model, tokenizer = Run(tmp_path / "run").model(), load(tmp_path / "run" / "tokenizer.json")
    assert model.rows[tokenizer.encode("cat …").tolist()].tolist() == [0, 4]
    assert export_vec(tmp_path / "run", tmp_path / "again.vec")["words"] == 5
    assert (tmp_path / "again.vec").read_bytes() == (tmp_path / "words.vec").read_bytes()


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_files_of_glove_without_a_first_line_are_read(tmp_path, compress):
    (tmp_path / "glove.txt").write_bytes(compress(b"a 1.5 -2\n\nb 0 1e-30\n"))
    words, vectors = read_vec(tmp_path / "glove.txt")
    assert words == ["a", "b"] and vectors.tolist() == [[1.5, -2], [0, np.float32(1e-30)]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2 2\na 1 2\n", "promises 2 words and has 1"),
        ("0 2\na 1 2\nb 1 2\n", "promises 0 words and has 2"),
        ("2 2\na 1 2\na 3 4\n", "line 3: 'a' is on line 2 already"),
        ("2 2\na 1 2\nb 1 x\n", "line 3: expected a word and 2 numbers"),
        ("2 2\na 1 2\nb 1 inf\n", "line 3: expected a word and 2 numbers"),
        ("a\nb\n", "line 1: expected a word and its numbers"),
        ("", "has 0 vectors"),
        ("9" * 10_000 + " 2\na 1 2\nb 3 4\n", "line 2: 'a 1' is not one word"),
        ("999999999 300\na 1 2\n", "promises 999,999,999 words of 300 numbers, more than"),
        ("\n2 2\n\na 1 2\nb x 2\n", "line 5: expected"),
        ("2 1\na 1\n\xff 2\n".encode("latin-1"), "line 3 is not UTF-8 text"),
    ],
)
def test_damaged_files_are_refused_by_their_line(tmp_path, text, message):
    path = tmp_path / "bad.vec"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=message):
        read_vec(path)


def test_a_folder_is_not_overwritten_with_vectors(tmp_path, vectors):
    with pytest.raises(UserError, match="is a folder"):
        write_vec(tmp_path, WORDS, vectors)
