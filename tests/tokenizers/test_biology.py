"""Bases, words of bases, amino acids and BPE over them: against tables and loops by hand."""

import json
import random
from collections import Counter
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import UsageError, UserError
from regard.recipe import build
from regard.tokenizers import Kmers, Nucleotides, ProteinBPE, Residues, load

SOME = settings(max_examples=80, deadline=None, database=None)
# The sets of bases that IUPAC's codes stand for (Cornish-Bowden 1985, table 1).
STANDS_FOR = {"A": "A", "C": "C", "G": "G", "T": "T", "R": "AG", "Y": "CT", "S": "CG", "W": "AT"}
STANDS_FOR |= {"K": "GT", "M": "AC", "B": "CGT", "D": "AGT", "H": "ACT", "V": "ACG", "N": "ACGT"}
PARTNER = {"A": "T", "C": "G", "G": "C", "T": "A", "-": "-"}
DNA = Nucleotides.train(["ACGT"])
RUNS = st.lists(st.text("ACGT", max_size=9) | st.sampled_from("NR-"), max_size=6).map("".join)


def other_strand(text):
    """The complement of a code is the code of the complements of its bases."""
    code_of = {frozenset(bases): code for code, bases in STANDS_FOR.items()}
    out = []
    for letter in reversed(text):
        bases = STANDS_FOR.get(letter)
        partner = code_of[frozenset(PARTNER[b] for b in bases)] if bases else letter
        out.append(partner)
    return "".join(out)


def by_hand(text, k, overlap):
    """Words of a text: a loop over its runs of certain bases."""
    tokens, start = [], 0
    while start < len(text):
        end = start
        while end < len(text) and text[end] in "ACGT":
            end += 1
        run = text[start:end]
        if overlap:
            tokens += [run[max(0, i - k + 1) : i + 1] for i in range(len(run))]
        else:
            while len(run) >= k:
                tokens.append(run[:k])
                run = run[k:]
            tokens += run
        tokens += text[end : end + 1]
        start = end + 1
    return tokens


def test_every_code_has_the_complement_that_its_bases_have():
    for letter in [*STANDS_FOR, "-"]:
        (id,) = DNA.encode(letter)
        assert DNA.text(DNA.complement[id]) == other_strand(letter)
    assert DNA.complement[:4].tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(DNA.complement[DNA.complement], np.arange(DNA.vocab_size))


@SOME
@given(st.text("ACGTRYSWKMBDHVN-", max_size=40))
def test_the_other_strand_of_ids_is_that_of_the_text_and_turning_twice_changes_nothing(text):
    ids = DNA.encode(text)
    assert DNA.decode(ids) == text
    assert DNA.decode(DNA.reverse_complement(ids)) == other_strand(text)
    np.testing.assert_array_equal(DNA.reverse_complement(DNA.reverse_complement(ids)), ids)


def test_u_without_t_is_rna_and_keeps_its_u_and_anything_else_is_dna():
    rna = Nucleotides.train(["ACGN", "gguu"])
    assert rna.decode(rna.encode("ACGUT")) == rna.normalize("ACGUT") == "ACGUU"
    assert rna.decode(rna.reverse_complement(rna.encode("AACGU"))) == "ACGUU"
    for texts in (["ACGU", "t"], ["ACG"], []):
        dna = Nucleotides.train(texts)
        assert dna.decode(dna.encode("ACGUT")) == dna.normalize("ACGUT") == "ACGTT"
    assert dna.count_substitutions(["ACGU", "uua"]) == {"U as T": 1, "u as T": 2, "a as A": 1}


def test_reading_stops_at_the_first_t():
    def texts():
        yield "ACGU"
        yield "ACGT"
        raise AssertionError("one T says enough")

    assert "T" in Nucleotides.train(texts()).tokens


def test_soft_masked_bases_are_folded_or_kept():
    kept = Nucleotides.train(["ACGT"], case="keep")
    assert DNA.decode(DNA.encode("acGTn-")) == "ACGTN-" == DNA.normalize("acGTn-")
    assert kept.decode(kept.encode("acGTn-u")) == "acGTn-t" == kept.normalize("acGTn-u")
    assert kept.decode(kept.reverse_complement(kept.encode("acGTr"))) == "yACgt"
    assert not kept.count_substitutions(["acgt"]) and DNA.count_substitutions(["acgt"]).total() == 4
    assert (DNA.vocab_size, kept.vocab_size) == (4 + 16, 4 + 16 + 15)


@cache
def words_of(k, overlap):
    return Kmers(DNA.alphabet, k, overlap)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("k", [2, 3, 6])
@SOME
@given(texts=st.lists(RUNS, max_size=4))
def test_words_are_those_of_the_loop_and_every_text_comes_back(k, overlap, texts):
    tokenizer = words_of(k, overlap)
    ids, lengths = tokenizer.encode_batch(texts)
    parts = np.split(ids, np.cumsum(lengths)[:-1]) if texts else []
    for text, part in zip(texts, parts, strict=True):
        assert [tokenizer.text(id) for id in part] == by_hand(text, k, overlap)
        assert tokenizer.decode(part) == text
        assert tokenizer.symbols[part].sum() == tokenizer.byte_counts[part].sum() == len(text)
        back = tokenizer.reverse_complement(part)
        np.testing.assert_array_equal(back, tokenizer.encode(other_strand(text)))
        whole = len(text) % k == 0 and set(text) <= set("ACGT") and not overlap
        if whole:
            np.testing.assert_array_equal(back, tokenizer.complement[part][::-1])


def test_overlapping_words_are_counted_as_slices_are():
    text = "ACGTTGCAACGTTAGGACGT" * 3
    tokenizer = Kmers.train([text], k=4, stride=1)
    found = Counter(w for w in map(tokenizer.text, tokenizer.encode(text)) if len(w) == 4)
    assert found == Counter(text[i : i + 4] for i in range(len(text) - 3))
    assert tokenizer.vocab_size == 20 + 16 + 64 + 256
    assert Kmers.train([text], k=4).vocab_size == 20 + 256


@pytest.mark.parametrize("stride", [1, 3])
@SOME
@given(text=st.text("ACGTNacgu?\n ", max_size=25))
def test_the_library_agrees_about_words_and_overlapping_ones_written_apart(stride, text):
    tokenizer = Kmers.train(["ACGT"], k=3, stride=stride)
    library = tokenizers.Tokenizer.from_str(json.dumps(tokenizer.document()))
    ids = tokenizer.encode(text).tolist()
    assert library.encode(tokenizer.spell_for_library(text)).ids == ids
    assert library.decode(ids, skip_special_tokens=False) == tokenizer.decode(ids)


@pytest.mark.parametrize("rna", [False, True])
@pytest.mark.parametrize("stride", [1, 2, 5])
def test_words_are_recognised_with_their_length_and_stride(rna, stride, tmp_path):
    k = 5 if stride == 5 else 2
    tokenizer = Kmers.train(["ACGU" if rna else "ACGT"], k=k, stride=stride)
    tokenizer.save(tmp_path / "tokenizer.json")
    again = load(tmp_path / "tokenizer.json")
    assert isinstance(again, Kmers) and again.document() == tokenizer.document()
    assert (again.k, again.overlap) == (k, stride == 1)
    tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json")).save(str(tmp_path / "2.json"))
    assert load(tmp_path / "2.json").document() == tokenizer.document()


@pytest.mark.parametrize("kind", [{}, {"case": "keep"}])
def test_alphabets_are_recognised(kind, tmp_path):
    for texts in (["ACGU"], ["ACGT"]):
        tokenizer = Nucleotides.train(texts, **kind)
        tokenizer.save(tmp_path / "tokenizer.json")
        again = load(tmp_path / "tokenizer.json")
        assert isinstance(again, Nucleotides) and again.alphabet == tokenizer.alphabet


@SOME
@given(first=RUNS, second=RUNS)
def test_running_text_may_be_cut_where_words_say(first, second):
    tokenizer = Kmers(DNA.alphabet, 3)
    at = tokenizer.cut(first)
    held = first[at:] + second
    ids = [*tokenizer.encode(first[:at]), *tokenizer.encode(held)]
    assert len(first) - at < 3 and ids == tokenizer.encode(first + second).tolist()


def test_markers_and_wrong_options_are_refused():
    for tokenizer in (DNA, Kmers(DNA.alphabet, 3)):
        with pytest.raises(UserError, match="<S> is on no strand"):
            tokenizer.reverse_complement([1, 4, 5])
    with pytest.raises(UsageError, match=r"^k must be from 2 to 8, got 9"):
        Kmers.train(["A"], k=9)
    with pytest.raises(UsageError, match=r"^stride must be 1 or k = 4, got 2"):
        Kmers.train(["A"], k=4, stride=2)
    with pytest.raises(UsageError, match=r"vocab_size must be 20 for these nucleotides.* got 30"):
        Nucleotides.train(["A"], 30)
    with pytest.raises(UsageError, match=r"unknown key 'output\.k'"):
        build({"output": {"tokenizer": "bytes", "k": 3}})
    with pytest.raises(UsageError, match="output: k is for kmers, not for residues"):
        build({"output": {"tokenizer": "residues", "k": 3}})
    with pytest.raises(UsageError, match="case is for nucleotides and residues, not for kmers"):
        build({"output": {"tokenizer": "kmers", "case": "keep"}})


def test_a_recipe_hands_its_options_on():
    def fit(**table):
        return build({"output": table}).modality("output").fit_encoder(["ACGT"])

    words = fit(tokenizer="kmers", k=3, stride=1)
    assert isinstance(words, Kmers) and (words.k, words.overlap) == (3, True)
    kept = fit(tokenizer="nucleotides", case="keep")
    assert "a" in kept.tokens


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
    assert folded.encode("M?K").tolist()[1] == 3 and folded.count_unknown("M?K??") == {"?": 3}
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
    assert (
        MOTIFS.count_unknown(text).total() == (ids == 3).sum() == text.count("?") + text.count(" ")
    )
    if not MOTIFS.count_unknown(text):
        assert MOTIFS.decode(ids) == MOTIFS.normalize(text) == text.upper()


def test_a_motif_that_all_chains_have_becomes_a_token_and_nothing_unknown_does():
    assert any(WALKER in token for token in MOTIFS.tokens)
    assert ProteinBPE.train(["MK?TAY" * 9, "mk tay" * 9], 60).tokens[:29] == tuple(sorted(LETTERS))
    assert not any("?" in t or " " in t for t in ProteinBPE.train(["MK?TAY K" * 9], 60).tokens)
    assert MOTIFS.vocab_size <= 120
    again = ProteinBPE.train(iter(CHAINS), 120)
    assert again.document() == MOTIFS.document()
