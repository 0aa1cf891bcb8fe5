"""Biological sequences: recognized by their letters, and both strands of DNA as one record."""

from __future__ import annotations

import pytest

from regard.data.column_kinds import CellSample
from regard.data.sources import SourceChunk
from regard.errors import UsageError
from regard.modalities.biology import Biology, BiologyConfig, Strands
from regard.recipe import build
from regard.tokenizers.tokenizer import PLAIN


def recognized(cells):
    kind = Biology.recognize_cells(CellSample(cells=cells))
    return kind and kind.tokenizer


PEPTIDES = ["SIINFEKL", "GILGFVFTL", "NLVPMVATV", "ELAGIGILTV", "KVLEYVIKV", "LLFGYPVYV"]


@pytest.mark.parametrize(
    ("cells", "tokenizer"),
    [
        (["ACGTTGCA" * 9], "nucleotides"),
        (["acguugca" * 9], "nucleotides"),
        (["ACGT" * 30 + "NR-", "N" * 40], "nucleotides"),
        (["ACGTTGCAAC"] * 19 + ["ACGT?"], "nucleotides"),  # one of twenty is damaged
        ([a + b + c for a in "ACGT" for b in "ACGT" for c in "AC"], "nucleotides"),  # codons
        (["MKTAYIAKQRQISFVKSHFSRQLEER"], "residues"),
        ([peptide + end for peptide in PEPTIDES for end in "AKLV"], "residues"),
        (["to be or not to be"], None),
        (["ACGT" * 30 + "?"], None),
        (["cat", "act", "tag", "gag"], None),  # words
        (["A", "C", "G", "T"] * 20, None),  # classes
        (["ACT", "CAT"] * 20, None),
        (["ANNA", "CARL", "EMILY", "FRED", "MARIA"] * 9, None),
        (["KRAS", "TP53", "EGFR", "BRCA1", "MYC", "PTEN"] * 9, None),
        (["internationalization", "the"] * 9, None),
        ([], None),
    ],
)
def test_letters_decide(cells, tokenizer):
    assert recognized(cells) == tokenizer


def test_a_tokenizer_of_sequences_names_the_modality():
    for name in ("nucleotides", "kmers", "residues", "protein-bpe"):
        recipe = build({"task": {"name": "label"}, "input": {"tokenizer": name}})
        assert recipe.input == BiologyConfig(tokenizer=name) and recipe.reads == "tokens"


def test_settings_of_one_tokenizer_are_not_for_another():
    kmers = Biology(BiologyConfig(tokenizer="kmers", k=3, stride=1))
    assert kmers.options == {"k": 3, "stride": 1}
    assert Biology(BiologyConfig(tokenizer="kmers")).options == {}
    for table, message in (
        ({"tokenizer": "nucleotides", "k": 3}, "k is for kmers, not for nucleotides"),
        ({"tokenizer": "protein-bpe", "stride": 1}, "stride is for kmers, not for protein-bpe"),
        ({"tokenizer": "kmers", "case": "keep"}, "case is for nucleotides and residues"),
        ({"name": "biology", "tokenizer": "bpe"}, "tokenizer 'bpe' is not one of biology"),
        ({"tokenizer": "residues", "case": "lower"}, r"output\.case: "),
    ):
        with pytest.raises(UsageError, match=message):
            build({"output": table})


def test_letter_case_counts_only_where_it_is_kept():
    assert Biology(BiologyConfig(tokenizer="residues")).canonical().of("mkV") == "MKV"
    kept = Biology(BiologyConfig(tokenizer="residues", case="keep"))
    assert kept.canonical().of("mkV") == "mkV"
    assert kept.fit_encoder(["mkV"]).decode(kept.fit_encoder(["mkV"]).encode("mkV")) == "mkV"


def test_both_strands_are_views_of_one_record():
    views = Strands().views()
    assert views.count == 2 and views.texts(["AACG", "TN"]) == ["AACG", "CGTT", "TN", "NA"]
    form = Strands().canonical(PLAIN)
    assert form.of("AACG") == form.of("CGTT") != form.of("AACC")


def test_running_text_is_followed_by_its_other_strand():
    chunks = [
        SourceChunk(0, (), begins=True),
        SourceChunk(0, ["AAC"]),
        SourceChunk(0, (), ends=True),
    ]
    texts = ["".join(chunk.texts) for chunk in Strands().running_text(iter(chunks))]
    assert texts == ["", "AAC", "", "", "GTT", ""]
