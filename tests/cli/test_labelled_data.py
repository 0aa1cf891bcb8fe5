"""`regard data` on labelled records, and FASTA through the verbs."""

import json
import random

import pytest

ROWS = [("AACCGGTTAA" * 3 + i * "C", "ab"[i % 2], f"{i * 0.5}") for i in range(1, 25)]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "t.csv"
    lines = ["seq,kind,y,set", *(f"{a},{b},{c},train" for a, b, c in ROWS[:-2])]
    lines += [f"{ROWS[-2][0]},rare,11.5,test", f"{ROWS[0][0]},a,12,test", f"{ROWS[3][0]},a,,valid"]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_labels_are_counted_by_side_with_their_troubles(cli, table):
    asked = ("data", table, "--input", "seq", "--target", "kind", "--set", "data.split=set")
    found = cli(*asked, "--json")
    assert found.code == 0
    labels = found.document["labels"]
    assert labels["task"] == "label"
    assert labels["records"] == {"train": 22, "valid": 1, "test": 2}
    assert labels["classes"]["kind"]["a"] == {"train": 11, "valid": 1, "test": 1}
    assert labels["single"] == ["rare"]
    assert labels["unseen"] == {"test": {"rare": 1}}
    assert labels["conflicts"] == 1  # the first sequence is b in training and a in the test
    assert found.document["leaks"] == {"valid": 1, "test": 1}
    assert labels["near"]["test"]["records"] == 1
    page = " ".join(cli(*asked).out.split())
    for part in (
        "task label (3 different targets under 'kind')",
        "sides 22 train, 1 valid, 2 test",
        "kind 3 classes: a 13, b 11, rare 1",
        "one example rare (",
        "× 1: training has no such class",
        "conflicts 1 inputs come with different targets",
        "leaks to test 1 of 2 (50.0%)",
        "near in test 1 of 2 different ones (50.0%) are almost one of 22 in training",
    ):
        assert part in page


def test_values_show_their_range_and_gaps(cli, table):
    found = cli("data", table, "--input", "seq", "--target", "y", "--task", "value", "--json")
    labels = found.document["labels"]
    assert labels["values"]["y"]["min"] == 0.5
    assert labels["values"]["y"]["max"] == 12
    assert found.document["skipped"] == 0  # one without a value is not damaged
    left = f"1 row has no 'y' value and was skipped; first: {table}:26"
    assert found.document["remarks"] == [left]
    assert found.document["suggestion"]["task"] == "value"
    assert "y from 0.5 to 12" in " ".join(
        cli("data", table, "--input", "seq", "--target", "y", "--task", "value").out.split()
    )


def test_pairs_are_still_pairs(cli, tmp_path):
    path = tmp_path / "p.tsv"
    path.write_text("en\tde\na cat\teine Katze\na dog\tein Hund\na house\tein Haus\n")
    found = cli("data", path, "--input", "en", "--target", "de", "--json")
    assert found.document["suggestion"]["task"] == "target"
    assert found.document["labels"] is None


def test_a_file_for_every_class_is_asked_for_with_the_task(cli, tmp_path):
    rng = random.Random(2)
    for name in ("pos", "neg"):
        lines = [" ".join(rng.choices(["good", "bad", "film", "dull"], k=6)) for _ in range(30)]
        (tmp_path / f"{name}.txt").write_text("\n".join(lines) + "\n")
    found = cli("data", "pos.txt", "neg.txt", "--task", "label", "--format", "lines", "--json")
    classes = found.document["labels"]["classes"]["label"]
    assert {name: sum(sides.values()) for name, sides in classes.items()} == {"pos": 30, "neg": 30}
    (tmp_path / "other").mkdir()
    (tmp_path / "other/pos.txt").write_text("a film\n" * 9)
    alone = cli("data", "pos.txt", "other/pos.txt", "--task", "label", "--format", "lines")
    assert "one class all are 'pos'" in " ".join(alone.out.split())


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--target", "kidn"], 2, "did you mean 'kind'"),
        (["--target", "kind", "--task", "lable"], 2, "did you mean 'label'"),
        (["--target", "kind", "--set", "train.lr=1"], 2, "regard data has data.KEY alone"),
        (["--target", "kind", "--set", "data.splt=x"], 2, "did you mean 'split'"),
        (["--target", "kind", "--task", "value"], 1, "text instead of a number in column 'kind'"),
        (["--target", "kind", "--strict", "--task", "position-label"], 1, "t.csv:2: 1 labels for"),
        (["--set", "data.encoding=latin"], 0, ""),
        (["--set", "data.encoding=klingon"], 2, "unknown data.encoding 'klingon'"),
    ],
)
def test_mistakes_are_one_line(cli, table, arguments, code, message):
    found = cli("data", table, "--input", "seq", *arguments)
    assert found.code == code
    assert message in found.err
    assert len(found.err.strip().splitlines()) <= 2


def test_fasta_trains_scores_and_evaluates_like_lines(cli, tmp_path):
    rng = random.Random(4)
    sequences = ["".join(rng.choices("ACDEFGHIKL", k=rng.randint(5, 30))) for _ in range(60)]
    entries = [f">id{i} some words\n{s[:12]}\n{s[12:]}\n" for i, s in enumerate(sequences)]
    (tmp_path / "proteins.fasta").write_text("".join(entries))
    (tmp_path / "lines.txt").write_text("\n".join(sequences) + "\n")
    runs = {}
    for name in ("proteins.fasta", "lines.txt"):
        out = f"runs/{name}"
        assert cli("train", name, "--model", "bigram", "--out", out, "--quiet").code == 0
        found = cli("evaluate", out, name, "--json")
        runs[name] = json.loads(found.out)["metrics"]["bits_per_symbol"]["value"]
    assert runs["proteins.fasta"] == pytest.approx(runs["lines.txt"], abs=1e-9)


@pytest.mark.parametrize("verb", ["data", "train", "compare"])
def test_every_verb_warns_of_the_same(cli, tmp_path, verb):
    rng = random.Random(5)
    labels = ["toxic", "Toxic", "safe", "NA"]
    rows = ["".join(rng.choices("ACGT", k=12)) + f",{labels[i % 4]}" for i in range(120)]
    (tmp_path / "t.csv").write_text("\n".join(["seq,y", *rows]) + "\n")
    own = {"data": [], "train": ["--model", "naive-bayes", "--json"]}
    own["compare"] = ["--models", "majority", "--json"]
    found = cli(verb, "t.csv", "--input", "seq", "--target", "y", *own[verb])
    assert found.code == 0
    page = " ".join((found.out + found.err).split())
    assert "30 rows have no 'y' value and were skipped; first: " in page
    assert "2 classes of 'y' differ only by case or space: 'Toxic' (" in page
