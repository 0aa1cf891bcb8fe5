"""Bases and words of bases: against tables and loops written out by hand."""

import json
from collections import Counter
from functools import cache

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import UsageError, UserError
from regard.recipe import build
from regard.tokenizers import Kmers, Nucleotides, learn, load

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
    assert rna.decode(rna.encode("ACGUT")) == rna.normal("ACGUT") == "ACGUU"
    assert rna.decode(rna.reverse_complement(rna.encode("AACGU"))) == "ACGUU"
    for texts in (["ACGU", "t"], ["ACG"], []):
        dna = Nucleotides.train(texts)
        assert dna.decode(dna.encode("ACGUT")) == dna.normal("ACGUT") == "ACGTT"
    assert dna.changed(["ACGU", "uua"]) == {"U as T": 1, "u as T": 2, "a as A": 1}


def test_reading_stops_at_the_first_t():
    def texts():
        yield "ACGU"
        yield "ACGT"
        raise AssertionError("one T says enough")

    assert "T" in Nucleotides.train(texts()).characters


def test_soft_masked_bases_are_folded_or_kept():
    kept = Nucleotides.train(["ACGT"], case="keep")
    assert DNA.decode(DNA.encode("acGTn-")) == "ACGTN-" == DNA.normal("acGTn-")
    assert kept.decode(kept.encode("acGTn-u")) == "acGTn-t" == kept.normal("acGTn-u")
    assert kept.decode(kept.reverse_complement(kept.encode("acGTr"))) == "yACgt"
    assert not kept.changed(["acgt"]) and DNA.changed(["acgt"]).total() == 4
    assert (DNA.vocab_size, kept.vocab_size) == (4 + 16, 4 + 16 + 15)


@cache
def words_of(k, overlap):
    return Kmers(DNA, k, overlap=overlap)


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
    assert library.encode(tokenizer.spelt(text)).ids == ids
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
    tokenizer = Kmers(DNA, 3)
    at = tokenizer.cut(first)
    held = first[at:] + second
    ids = [*tokenizer.encode(first[:at]), *tokenizer.encode(held)]
    assert len(first) - at < 3 and ids == tokenizer.encode(first + second).tolist()


def test_markers_and_wrong_options_are_refused():
    for tokenizer in (DNA, Kmers(DNA, 3)):
        with pytest.raises(UserError, match="<S> is on no strand"):
            tokenizer.reverse_complement([1, 4, 5])
    with pytest.raises(UsageError, match=r"tokens.k must be from 2 to 8, got 9"):
        Kmers.train(["A"], k=9)
    with pytest.raises(UsageError, match=r"tokens.stride must be 1 or k = 4, got 2"):
        Kmers.train(["A"], k=4, stride=2)
    with pytest.raises(UsageError, match=r"tokens.size must be 20 for these nucleotides.* got 30"):
        Nucleotides.train(["A"], 30)
    with pytest.raises(UsageError, match="tokens: k is for kmers, not for bytes"):
        build({"tokens": {"kind": "bytes", "k": 3}})


def test_a_recipe_hands_its_options_on():
    recipe = build({"tokens": {"kind": "kmers", "k": 3, "stride": 1}}).tokens
    words = learn(recipe, ["ACGT"])
    assert isinstance(words, Kmers) and (words.k, words.overlap) == (3, True)
    kept = learn(build({"tokens": {"kind": "nucleotides", "case": "keep"}}).tokens, ["ACGT"])
    assert "a" in kept.characters
