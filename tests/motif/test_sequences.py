"""Reading, shuffling and holding out sequences."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from regard.errors import UserError
from regard.models.motifs import DNA, PROTEIN, RNA
from regard.motif.sequences import read_sequences

RANDOM = np.random.default_rng(0)


def texts_of(letters, n=20, length=40):
    return ["".join(RANDOM.choice(list(letters), length)) for _ in range(n)]


@pytest.mark.parametrize(
    ("letters", "alphabet"),
    [("ACGT", DNA), ("acgtN", DNA), ("ACGU", RNA), ("ACDEFGHIKLMNPQRSTVWY", PROTEIN)],
)
def test_the_letters_decide_the_alphabet(tmp_path, letters, alphabet):
    texts = texts_of(letters)
    (tmp_path / "a.txt").write_text("\n".join(texts) + "\n")
    (tmp_path / "a.fa").write_text("".join(f">n{i} x\n{t}\n" for i, t in enumerate(texts)))
    lines, fasta = (read_sequences(tmp_path / name, print) for name in ("a.txt", "a.fa"))
    assert lines.texts == fasta.texts == tuple(texts)
    assert lines.alphabet == fasta.alphabet == alphabet
    assert (lines.names[2], fasta.names[2]) == ("3", "n2")


def test_what_is_no_sequence_is_an_error(tmp_path):
    (tmp_path / "a.txt").write_text("the king is dead\nlong live the king\n" * 9)
    with pytest.raises(UserError, match=r"a\.txt: motifs are searched in DNA, RNA and proteins"):
        read_sequences(tmp_path / "a.txt", print)
    (tmp_path / "b.txt").write_text("\n".join([*texts_of("ACGT"), "ACGT!ACGT"]))
    with pytest.raises(UserError, match=r"b\.txt: record 21: '!' at position 5"):
        _ = read_sequences(tmp_path / "b.txt", print).digits


def test_a_shuffle_keeps_the_counts_of_3_mers(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(texts_of("ACGTN")))
    sequences = read_sequences(tmp_path / "a.txt", print)
    shuffled = sequences.shuffled(np.random.default_rng(1))
    assert shuffled.texts != sequences.texts
    for before, after in zip(sequences.texts, shuffled.texts, strict=True):
        counts = [Counter(t[i : i + 3] for i in range(38)) for t in (before, after)]
        assert counts[0] == counts[1]


def test_equal_sequences_of_either_strand_are_in_one_part(tmp_path):
    texts = texts_of("ACGT", 12)
    other = [DNA.reverse_complement(DNA.encode(text)) for text in texts]
    texts += ["".join("ACGT"[i] for i in row) for row in other]
    (tmp_path / "a.txt").write_text("\n".join(texts))
    train, test = read_sequences(tmp_path / "a.txt", print).hold_out(np.random.default_rng(0))
    assert sorted(train + test) == list(range(24))
    assert len(test) == 8
    assert {i % 12 for i in train} & {i % 12 for i in test} == set()
