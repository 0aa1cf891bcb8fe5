"""Amino acids, and motifs of them."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import UsageError
from regard.tokenizers import ProteinBPE, Residues

SOME = settings(max_examples=60, deadline=None, database=None)
LETTERS = "ARNDCQEGHILKMFPSTWYV" + "XBZJUO" + "*-."
WALKER = "GAGKSGKT"  # a P-loop, in every chain below
RANDOM = random.Random(1)
CHAINS = [
    "M" + "".join(RANDOM.choices(LETTERS[:20], k=30)) + WALKER + "".join(RANDOM.choices("AKL", k=9))
    for _ in range(200)
]
MOTIFS = ProteinBPE.train(CHAINS, 120)


def merged(text, merges):
    """Sennrich et al. 2016: apply the best-ranked merge everywhere until none applies."""
    ranks = {tuple(pair): rank for rank, pair in enumerate(merges)}
    parts = list(text)
    while True:
        best = min(pairwise(parts), key=lambda pair: ranks.get(pair, len(ranks)), default=None)
        if best not in ranks:
            return parts
        i = 0
        while i < len(parts) - 1:
            if (parts[i], parts[i + 1]) == best:
                parts[i : i + 2] = ["".join(best)]
            i += 1


def test_each_of_the_29_signs_is_one_token_and_lower_case_is_folded_or_kept():
    folded, kept = Residues.train([]), Residues.train([], case="keep")
    assert (folded.vocab_size, kept.vocab_size) == (4 + 29, 4 + 29 + 26)
    assert len(set(folded.encode(LETTERS))) == 29 and folded.decode(folded.encode("mK*.")) == "MK*."
    assert kept.decode(kept.encode("mK*.")) == "mK*."
    assert folded.encode("M?K").tolist()[1] == 3 and folded.unknown("M?K??") == {"?": 3}
    with pytest.raises(UsageError, match="must be 33 for these residues"):
        Residues.train([], 40)


@SOME
@given(st.lists(st.sampled_from([*CHAINS[:9], *LETTERS, "k", "?", " "]), max_size=8).map("".join))
def test_motifs_are_those_of_the_merge_loop_and_come_back(text):
    ids = MOTIFS.encode(text)
    expected = merged(text.upper(), MOTIFS.merges)
    assert [MOTIFS.text(id) for id in ids] == [
        e if e in MOTIFS.tokens else "<unk>" for e in expected
    ]
    assert MOTIFS.symbols[ids].sum() == len(text)
    assert MOTIFS.unknown(text).total() == (ids == 3).sum() == text.count("?") + text.count(" ")
    if not MOTIFS.unknown(text):
        assert MOTIFS.decode(ids) == MOTIFS.normal(text) == text.upper()


def test_a_motif_that_all_chains_have_becomes_a_token_and_nothing_unknown_does():
    assert any(WALKER in token for token in MOTIFS.tokens)
    assert ProteinBPE.train(["MK?TAY" * 9, "mk tay" * 9], 60).tokens[:29] == tuple(sorted(LETTERS))
    assert not any("?" in t or " " in t for t in ProteinBPE.train(["MK?TAY K" * 9], 60).tokens)
    assert MOTIFS.vocab_size <= 120
    again = ProteinBPE.train(iter(CHAINS), 120)
    assert again.document() == MOTIFS.document()
