"""Duplicates and leaks: exact ones by hash, near ones as comparing all pairs finds them, and copies
that a tokenizer does not tell apart, which used to land in two splits.
"""

import random
import sys
import unicodedata
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import splits
from regard.data.report import inspect, inspect_labelled
from regard.data.sources import DataSource
from regard.data.splits import (
    NEAR,
    TextCounts,
    canonical_form,
    distinct,
    find,
    hashes,
    leaks,
    near_duplicates,
    word_length,
)
from regard.recipe import DataRecipe, build, modality_name
from regard.registry import AUGMENTATIONS, MODALITIES, TASKS
from regard.tokenizers import Kmers, Nucleotides, Residues

WORDS = st.lists(st.sampled_from(["a", "b", "c", "ä", "", "aa", "ab", "x\ny"]), max_size=30)

SPLIT = {"valid_fraction": 0.2, "test_fraction": 0.2}

MOLECULES = ["CCO", "c1ccccc1O", "CC(=O)Nc1ccc(O)cc1", "CN1CCC[C@H]1c1cccnc1", "OC(=O)c1ccccc1"]
MOLECULES += [f"{'C' * n}{tail}" for n in range(2, 9) for tail in ("N", "OC", "(F)Cl", "S(=O)C")]


def batched(texts, size=3):
    return [texts[i : i + size] for i in range(0, len(texts), size)]


@settings(max_examples=60)
@given(WORDS, WORDS)
def test_leaks_are_what_sets_of_strings_say(train, other):
    known = set(train)
    leak = leaks(batched(train), batched(other, 4))
    leaked = [text for text in other if text in known]
    assert (leak.records, leak.distinct, leak.total) == (len(leaked), len(set(leaked)), len(other))
    assert list(leak.examples) == list(dict.fromkeys(leaked))[:5]


@settings(max_examples=60)
@given(WORDS, st.integers(1, 9))
def test_counts_are_what_a_counter_says(texts, pending):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splits, "PENDING", pending)  # so that batches are merged again and again
        counts = TextCounts()
        for batch in batched(texts):
            counts.add(batch)
    values, times = counts.result()
    expected = {int(hashes([text])[0]): n for text, n in Counter(texts).items()}
    assert dict(zip(values.tolist(), times.tolist(), strict=True)) == expected
    assert (np.diff(values.astype(object)) > 0).all()
    assert counts.total == len(texts)


def test_planted_leaks_are_counted_exactly_among_many():
    train = [f"record {i}" for i in range(5_000)]
    other = [f"other {i}" for i in range(700)] + train[10:31] + train[10:15]
    leak = leaks(batched(train, 999), batched(other, 100))
    assert (leak.records, leak.distinct, leak.total) == (26, 21, 726)
    assert leak.examples == tuple(train[10:15])


def test_wanted_hashes_are_found_without_reading_on():
    def batches():
        yield ["a", "b"]
        yield ["c", "a"]
        raise AssertionError("read on")

    wanted = hashes(["c", "a"]).tolist()
    assert find(batches(), wanted) == dict(zip(wanted, ["c", "a"], strict=True))


def test_distinct_hashes_ascend():
    assert distinct([["b", "a"], [], ["a"]]).tolist() == sorted(hashes(["a", "b"]).tolist())


def kmers(text, k):
    return {text[i : i + k] for i in range(max(1, len(text) - k + 1))}


def brute_force(train, other, k):
    """Return the records of `other` that are near duplicates of `train`, by sets of strings."""

    def near(text, known):
        one, two = kmers(text, k), kmers(known, k)
        return len(one & two) >= NEAR * len(one | two)

    distinct_texts = [text for text in dict.fromkeys(other) if text not in train]
    return [text for text in distinct_texts if any(near(text, known) for known in train)]


def mutate(text, times, rng, letters):
    text = list(text)
    for i in rng.sample(range(len(text)), times):
        text[i] = rng.choice(letters)
    return "".join(text)


@pytest.mark.parametrize(("letters", "k"), [("ACGT", 8), ("ACDEFGHIKLMNPQRSTVWY", 5)])
def test_near_duplicates_are_those_that_comparing_all_finds(letters, k):
    rng = random.Random(3)
    train = ["".join(rng.choices(letters, k=rng.randint(60, 160))) for _ in range(150)]
    other = ["".join(rng.choices(letters, k=90)) for _ in range(30)]
    other += [mutate(text, times, rng, letters) for text in train[:40] for times in (1, 2, 5, 12)]
    other += train[:7]
    assert word_length(train) == k
    expected = brute_force(train, other, k)
    near = near_duplicates(train, other)
    assert 30 < len(expected) < len(other) - 60  # some are near, some are not
    assert near.records == len(expected)
    assert (near.compared, near.training) == (len(set(other)), 150)
    for one, two in near.examples:
        a, b = kmers(one, k), kmers(two, k)
        assert len(a & b) >= NEAR * len(a | b) and one != two


def test_texts_shorter_than_k_and_beyond_ascii_are_compared():
    assert near_duplicates(["ab", "xyz"], ["ab", "abc", "q"]).records == 0
    sentence = "the same sentence, almost word for word"
    assert near_duplicates([sentence], [f"{sentence}."]).records == 1
    assert near_duplicates([], ["a"]).records == near_duplicates(["a"], []).records == 0
    unicode = "grün wie das Gras 😀 im Mai"
    assert near_duplicates([unicode], [f"{unicode}!"]).records == 1


def test_the_budget_is_met_and_reported(monkeypatch):
    monkeypatch.setattr(splits, "BUDGET", 2000)
    texts = [f"{i:050d}" for i in range(100)]
    near = near_duplicates(texts, texts[:10])
    assert (near.training, near.compared) == (40, 10)


def test_many_similar_records_do_not_take_quadratic_time():
    rng = random.Random(1)
    base = "".join(rng.choices("ACDEFGHIKL", k=200))
    similar = list({mutate(base, 2, rng, "ACDEFGHIKL") for _ in range(3000)})
    calls = 0
    true = splits._jaccard

    def counted(one, two):
        nonlocal calls
        calls += 1
        return true(one, two)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splits, "_jaccard", counted)
        near = near_duplicates(similar[:2500], similar[2500:])
    assert near.records == near.compared == len(similar) - 2500
    assert calls <= 4 * near.compared


NEXT = TASKS["next"].roles


def modality(tokenizer, **options):
    table = {"tokenizer": tokenizer, **options}
    cls = MODALITIES[modality_name(table)]
    return cls(cls.Config(**table))


def form(tokenizer="auto", augmentation=None, size=100, **options):
    return canonical_form(modality(tokenizer, **options).canonical(), augmentation, "csv", size)


def labelled(tokenizer, augment=None, **data):
    tables = {"task": {"name": "label"}, "input": {"tokenizer": tokenizer}}
    tables |= {"augment": {"name": augment}} if augment else {}
    return DataSource.of(build({**tables, "data": {"input": "x", "target": "y", **data}}))


def splits_of(path, groups, tokenizer, augment=None):
    """The splits that the texts of each group are in."""
    sources = labelled(tokenizer, augment, train=[str(path)], **SPLIT)
    splits = defaultdict(set)
    for chunk in sources.chunks():
        for text in chunk.texts:
            splits[groups[text]].add(chunk.split)
    return sources, splits


def write(path, groups):
    """A table of texts in random order, with labels at random, one for each group."""
    draw, rows = random.Random(1), list(groups.items())
    labels = {group: draw.choice("ab") for group in sorted(set(groups.values()))}
    draw.shuffle(rows)
    path.write_text("x,y\n" + "".join(f"{text},{labels[group]}\n" for text, group in rows))
    return path


@settings(max_examples=60, deadline=None)
@given(st.text("ACGTUacgtuNn", max_size=8), st.text("ACGTUacgtuNn", max_size=8))
def test_bases_are_compared_as_every_tokenizer_reads_them(one, two):
    same = form("nucleotides").of(one) == form("nucleotides").of(two)
    for texts in (["ACGT"], ["ACGU"]):  # DNA, and RNA
        for tokenizer in (Nucleotides.train(texts), Kmers.train(texts, k=3)):
            assert same == (tokenizer.encode(one).tolist() == tokenizer.encode(two).tolist())


def test_case_counts_where_the_tokenizer_keeps_it():
    keep = form("residues", case="keep")
    assert keep.of("mkV") == "mkV" and form("residues").of("mkV") == "MKV"
    upper, lower = map(Residues.train(["MKV"], case="keep").encode, ("MK", "mk"))
    assert upper.tolist() != lower.tolist()
    assert form("protein-bpe").of("mkV") == "MKV"
    assert form("characters").of("mkV") == form("words").of("mkV") == "mkV"


def test_lower_case_copies_are_in_one_split_and_counted(tmp_path):
    draw, groups = random.Random(0), {}
    for number in range(150):
        text = "".join(draw.choices("ACGT", k=30))
        groups |= {text: number, text.lower(): number}
    sources, splits = splits_of(write(tmp_path / "t.csv", groups), groups, "nucleotides")
    assert {len(one) for one in splits.values()} == {1}
    assert {min(one) for one in splits.values()} == {0, 1, 2}
    report = inspect_labelled(sources)
    assert report.copies == 150 and all(not leak.records for leak in report.leaks.values())
    assert ("copies", "150 of 300 records repeat another one (compared without regard to letter "
            "case, U or T); copies are in one split") in report.warnings()  # fmt: skip
    assert inspect(sources.train).duplicates == 150
    _, apart = splits_of(tmp_path / "t.csv", groups, "characters")  # other records to that model
    assert 2 in {len(one) for one in apart.values()}


def test_spellings_of_a_molecule_are_in_one_split(tmp_path):
    chem = pytest.importorskip("rdkit.Chem", reason="RDKit is not installed")
    groups = {}
    for molecule in MOLECULES:
        read = chem.MolFromSmiles(molecule)
        spellings = [chem.MolToSmiles(read, doRandom=True) for _ in range(12)]
        groups |= dict.fromkeys(spellings, molecule)
    assert len(groups) > 2 * len(MOLECULES)
    sources, splits = splits_of(write(tmp_path / "t.csv", groups), groups, "smiles")
    assert {len(one) for one in splits.values()} == {1}
    assert len(set.union(*splits.values())) == 3
    assert inspect_labelled(sources).copies == len(groups) - len(MOLECULES)
    assert form("smiles").of("not a molecule") == "not a molecule"
    spelled = form("characters", AUGMENTATIONS["spellings"]())
    assert spelled.of("OCC") == form("smiles-bpe").of("C(O)C")
    lines = tmp_path / "t.smi"
    lines.write_text("OCC\nCCO\nCCN\n")
    assert inspect(DataSource(DataRecipe(train=(str(lines),)), NEXT).train).duplicates == 1


def test_without_rdkit_a_note_says_that_spellings_were_not_compared(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "rdkit", None)
    smiles = form("smiles")
    assert "spellings of one molecule were not compared: RDKit is not installed" in smiles.note
    assert smiles.of("OCC") == "OCC"
    path = tmp_path / "t.smi"
    path.write_text("OCC\nCCO\n")
    sources = DataSource(DataRecipe(train=(str(path),)), NEXT)
    assert sources.remarks == [smiles.note] and inspect(sources.train).remarks == (smiles.note,)


def test_large_files_of_molecules_are_compared_as_written_with_a_note():
    pytest.importorskip("rdkit", reason="RDKit is not installed")
    large = form("smiles", size=splits.MAX_SLOW_BYTES + 1)
    assert large.note.endswith("the data is larger than 32 MB") and large.of("OCC") == "OCC"
    assert not form("smiles", size=splits.MAX_SLOW_BYTES).note


def test_both_strands_are_one_record_where_both_are_shown(tmp_path):
    draw, groups = random.Random(5), {}
    for number in range(120):
        text = "".join(draw.choices("ACGT", k=24))
        other = "".join({"A": "T", "C": "G", "G": "C", "T": "A"}[base] for base in reversed(text))
        groups |= {text: number, other.lower(): number}
    path = write(tmp_path / "t.csv", groups)
    _, splits = splits_of(path, groups, "nucleotides", augment="strands")
    assert {len(one) for one in splits.values()} == {1}
    _, apart = splits_of(path, groups, "nucleotides")
    assert 2 in {len(one) for one in apart.values()}


def test_composed_and_decomposed_letters_are_one_record(tmp_path):
    names = [f"José-{number} Müller" for number in range(200)]
    path = tmp_path / "names.txt"
    both = [*names, *(unicodedata.normalize("NFD", name) for name in names)]
    path.write_text("\n".join(both) + "\n")
    sources = DataSource(DataRecipe(train=(str(path),), **SPLIT), NEXT)
    splits = defaultdict(set)
    for chunk in sources.chunks():
        for text in chunk.texts:
            splits[unicodedata.normalize("NFC", text)].add(chunk.split)
    assert len(splits) == 200 and {len(one) for one in splits.values()} == {1}
    assert inspect(sources.train).duplicates == 200


def test_leaks_of_given_files_are_found_in_any_case(tmp_path):
    (tmp_path / "train.csv").write_text("x,y\nACGTAC,a\nGGGTTT,b\nCCCAAA,a\n")
    (tmp_path / "test.csv").write_text("x,y\nacguac,a\nTTTTTT,b\n")
    files = {"train": [str(tmp_path / "train.csv")], "test": [str(tmp_path / "test.csv")]}
    sources = labelled("nucleotides", **files, valid_fraction=0)
    assert sources.leaks()["test"]["records"] == 1
