"""Validity, uniqueness and novelty of generated texts."""

from __future__ import annotations

import json

import pytest
from scipy.stats import binomtest

from regard.api import train_recipe
from regard.cli import run
from regard.evaluation.validity import Rule, Share, measure_validity
from regard.modalities.biology import Biology
from regard.modalities.chemistry import Chemistry
from regard.modalities.text import Text
from regard.planning import plan_recipe
from regard.registry import TOKENIZERS

UPPER = Rule("upper case", lambda text: text.lower() if text.isupper() else None)


def test_each_share_is_of_what_is_left():
    texts = ["AB", "AB", "CD", "EF", "no", ""]
    result = measure_validity(texts, UPPER, ["CD", "xy"])
    assert (result.valid.count, result.valid.total) == (4, 6)
    assert (result.unique.count, result.unique.total) == (3, 4)
    assert (result.new.count, result.new.total) == (2, 3)
    assert result.compared == 2


def test_what_is_unknown_is_said():
    result = measure_validity(["no"], UPPER, None)
    assert result.new is None and "unknown" in result.lines()[-1]
    document = json.loads(json.dumps(result.to_json()))
    assert document["validity"]["value"] == 0
    assert document["uniqueness"]["value"] is document["novelty"]["value"] is None


@pytest.mark.parametrize(("count", "total"), [(0, 7), (3, 10), (50, 50)])
def test_the_interval_is_wilsons(count, total):
    expected = binomtest(count, total).proportion_ci(method="wilson")
    assert Share(count, total).interval == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_a_protein_has_no_letters_but_amino_acids():
    rule = Biology().validity_rule(TOKENIZERS["residues"].train(["MKT"]))
    assert rule.normal_form("mkt") == "MKT"
    assert rule.normal_form("MKX") is None and rule.normal_form("") is None


@pytest.mark.parametrize("name", ["nucleotides", "kmers"])
def test_bases_are_those_of_the_run(name):
    dna, rna = (TOKENIZERS[name].train([text]) for text in ("ACGTACGT", "ACGUACGU"))
    assert Biology().validity_rule(dna).normal_form("ACGT") == "ACGT"
    assert Biology().validity_rule(dna).normal_form("ACGU") is None
    assert Biology().validity_rule(rna).normal_form("ACGU") == "ACGU"


def test_a_molecule_is_what_rdkit_can_parse():
    pytest.importorskip("rdkit")
    rule = Chemistry().validity_rule(TOKENIZERS["smiles"].train(["CCO"]))
    assert rule.normal_form("OCC") == rule.normal_form("CCO") == "CCO"
    assert rule.normal_form("C1CC") is None and rule.normal_form("") is None


def test_any_text_is_valid():
    assert Text().validity_rule(TOKENIZERS["characters"].train(["abc"])) is None


def test_generate_prints_it_beside_the_sequences(tmp_path, capsys):
    lines = "".join(f">p{i}\n{'MKTAYIAKQRQISFVKSHFSRQ'[i % 5 :]}\n" for i in range(40))
    (tmp_path / "p.fasta").write_text(lines)
    keys = ["task.name=next", "model.name=bigram"]
    train_recipe(plan_recipe([tmp_path / "p.fasta"], assignments=keys)[0], tmp_path / "run")
    capsys.readouterr()
    assert run(["generate", str(tmp_path / "run"), "--num", "5", "--json"]) == 0
    validity = json.loads(capsys.readouterr().out)["validity"]
    assert validity["validity"]["value"] == 1 and validity["training_records"] > 20
    assert run(["generate", str(tmp_path / "run"), "--num", "5"]) == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 5 and "valid: 5 of 5" in printed.err
