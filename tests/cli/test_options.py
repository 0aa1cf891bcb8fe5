"""Verbs that apply a run to a file read it as training did, and say what is odd about records."""

import random
import subprocess
import sys

import pytest

import regard.cli
from regard.api import load

SMALL = ["--set=model.n_layers=1", "--set=model.d_model=8", "--set=train.batch_tokens=64"]


def sequences(count, seed, letters):
    source = random.Random(seed)
    return ["".join(source.choices(letters, k=source.randint(8, 20))) for _ in range(count)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Class files of which all records have one id, and a table with rows that are damaged."""
    place = tmp_path_factory.mktemp("records")
    classes = {"rich": sequences(80, 1, "GGGCCA"), "poor": sequences(80, 2, "AAATTG")}
    for name, texts in classes.items():
        (place / f"{name}.fa").write_text("".join(f">DNA {name}\n{text}\n" for text in texts))
    rows = [f"m{i},{t},{n},x" for n, ts in classes.items() for i, t in enumerate(ts)]
    rows.insert(3, "broken")
    (place / "table.csv").write_text("\n".join(["id,dna,kind,note", *rows]) + "\n")
    return place


def trained(folder, *arguments):
    assert regard.cli.run(["train", *map(str, arguments), "--out", str(folder), "--quiet"]) == 0
    return folder


@pytest.fixture(scope="module")
def by_file(place):
    files = place / "rich.fa", place / "poor.fa"
    return trained(place / "by-file", *files, "--task", "label", "--model", "naive-bayes")


@pytest.fixture(scope="module")
def by_column(place):
    columns = ["--input", "dna", "--target", "kind"]
    options = [
        "--set=train.steps=20",
        "--set=model.max_len=32",
        "--set=input.tokenizer=nucleotides",
    ]
    return trained(place / "by-column", place / "table.csv", *columns, *options, *SMALL)


def rows_of(result):
    return [line.split("\t") for line in result.out.splitlines()]


def test_fasta_is_classified_by_sequence_not_by_line(cli, by_file, tmp_path):
    """Headers were classified as if they were sequences, and each line of one by itself."""
    (tmp_path / "new.fa").write_text(">s1 one\nGGCC\nGGGC\n>s2\nAATTAA\n>s3\n\n>s4\nGGZZ\n")
    predictor = load(by_file)
    expected = [answer.label for answer in predictor.predictions(["GGCCGGGC", "AATTAA", "GGZZ"])]
    found = cli("predict", by_file, "new.fa")
    rows = rows_of(found)
    assert found.code == 0 and [row[2] for row in rows] == ["s1", "s2", "line 6", "s4"]
    assert [rows[i][0] for i in (0, 1, 3)] == expected and expected[:2] == ["rich", "poor"]
    assert rows[2][0] == "" and "has no sequence" in rows[2][3]
    assert rows[3][3] == "2 of 4 symbols unknown: 'Z'" and rows[0][3] == rows[1][3] == ""
    assert "1 of 4 records could not be read" in found.err
    assert "1 of 4 records has unknown symbols; first: s4" in found.err
    records = cli("predict", by_file, "new.fa", "--json").document["predictions"]
    assert [r["id"] for r in records] == [row[2] for row in rows]
    assert [r["note"] for r in records] == [row[3] for row in rows]
    strict = cli("predict", by_file, "new.fa", "--strict")
    assert strict.code == 1 and strict.out == found.out


def test_a_table_is_classified_by_the_column_of_the_run(cli, by_column, tmp_path):
    """The header and whole rows were classified as if they were sequences."""
    (tmp_path / "new.csv").write_text("note,dna,id\nx,GGCCGG,a\ny,,b\nz\nw," + "A" * 99 + ",d\n")
    found = cli("predict", by_column, "new.csv")
    rows = rows_of(found)
    (expected,) = load(by_column).predictions(["GGCCGG"])
    assert rows[0][:3] == [expected.label, f"{expected.scores[expected.label]:.4f}", "a"]
    assert [row[2:] for row in rows[1:]] == [
        ["b", "empty"],
        ["line 4", "1 fields, expected 3"],
        ["d", "truncated: 99 tokens, the model reads the first 30"],
    ]
    piped = subprocess.run(
        [sys.executable, "-m", "regard", "predict", str(by_column)],
        input=(tmp_path / "new.csv").read_bytes(),
        stdout=subprocess.PIPE,
        check=True,
    )
    assert piped.stdout.decode() == found.out
    (tmp_path / "other.csv").write_text("name,DNA\na,GG\n")
    refused = cli("predict", by_column, "other.csv")
    assert refused.code == 2 and "has no column 'dna'" in refused.err
    assert "it has name, DNA" in refused.err
    assert rows_of(cli("predict", by_column, "other.csv", "--input", "DNA"))[0][2] == "GG"


def test_vectors_have_the_ids_of_their_records(cli, by_column, tmp_path):
    import numpy as np

    (tmp_path / "new.csv").write_text("note,dna,id\nx,GGCC,a\nz\nw,AATT,d\n")
    rows = rows_of(cli("embed", by_column, "new.csv"))
    assert [(row[0], row[-1]) for row in rows] == [
        ("a", ""), ("line 3", "1 fields, expected 3"), ("d", ""),
    ]  # fmt: skip
    cli("embed", by_column, "new.csv", "--out", "v.npy")
    vectors = np.load("v.npy")
    assert np.isnan(vectors[1]).all() and vectors.shape == (3, len(rows[0]) - 2)
    expected = load(by_column).embed(["GGCC", "AATT"])
    np.testing.assert_allclose(vectors[[0, 2]], expected, rtol=1e-4, atol=1e-6)


def test_scores_and_prompts_from_fasta(cli, bigram, tmp_path):
    (tmp_path / "some.fa").write_text(">one\nac\ne\n>two\nbQ\n")
    rows = rows_of(cli("score", bigram, "some.fa"))
    expected = [sum(logs) for _, logs in load(bigram).score(["ace", "bQ"])]
    assert [float(row[0]) for row in rows] == pytest.approx(expected, abs=1e-5)
    assert [row[1:] for row in rows] == [["one", ""], ["two", "1 of 2 symbols unknown: 'Q'"]]
    options = ["--strategy", "greedy", "--max-new", 4]
    rows = rows_of(cli("generate", bigram, "--prompt-file", "some.fa", *options))
    alone = cli("generate", bigram, "--prompt", "ace", *options).out.rstrip("\n")
    assert rows[0] == ["one", alone, ""] and rows[1][0] == "two" and "unknown" in rows[1][2]
    found = cli("generate", bigram, "--prompt", "a", "--prompt-file", "some.fa")
    assert found.code == 2 and "--prompt or --prompt-file" in found.err


def test_class_files_are_matched_by_name_or_else_by_order(cli, by_file, place, tmp_path):
    """Repeated ids were refused, and other names gave figures of nothing."""
    for name in ("rich", "poor"):
        (tmp_path / f"{name}.fa").write_text((place / f"{name}.fa").read_text() + ">new\nACGT\n")
        (tmp_path / f"other-{name}.fa").write_text((tmp_path / f"{name}.fa").read_text())
    named = cli("evaluate", by_file, "poor.fa", "rich.fa", "--json")
    ordered = cli("evaluate", by_file, "other-rich.fa", "other-poor.fa", "--json")
    assert named.document["records"] == ordered.document["records"] == 162
    for name, figure in named.document["metrics"].items():
        value = ordered.document["metrics"][name]["value"]
        assert figure["value"] == pytest.approx(value, abs=1e-9)
    assert named.document["metrics"]["accuracy"]["value"] > 0.9
    assert "classes by the names of the files" in named.err
    assert "other-rich.fa = rich, other-poor.fa = poor" in ordered.err
    swapped = cli("evaluate", by_file, "other-poor.fa", "other-rich.fa", "--json").document
    assert swapped["metrics"]["accuracy"]["value"] < 0.1
    assert cli("evaluate", by_file, "other-poor.fa").code == 2
    (tmp_path / "t.csv").write_text("dna,kind\nGGCC,rich\n")
    found = cli("evaluate", by_file, "t.csv")
    assert found.code == 2 and "--target COLUMN; it has dna, kind" in found.err


def test_columns_come_from_the_run_and_damage_is_counted(cli, by_column, place, tmp_path):
    text = (place / "table.csv").read_text().replace("m5,", "mm5,")
    (tmp_path / "new.csv").write_text(text)
    given = cli("evaluate", by_column, "new.csv", "--json")
    columns = ["--input", "dna", "--target", "kind"]
    asked = cli("evaluate", by_column, "new.csv", *columns, "--json")
    assert given.code == 0 and given.document == asked.document
    assert given.document["records"] == 160
    assert "1 record is damaged and was skipped; first: new.csv:5: 1 fields" in given.err
    assert "trained on" not in given.err
    strict = cli("evaluate", by_column, "new.csv", "--strict")
    assert strict.code == 1 and "new.csv:5: 1 fields, expected 4" in strict.err
    (tmp_path / "none.csv").write_text("dna,label\nGG,x\n")
    found = cli("evaluate", by_column, "none.csv")
    assert found.code == 2 and "no column 'kind'" in found.err and "it has dna, label" in found.err


def test_the_training_file_is_recognised_whatever_its_name(
    cli, by_column, by_file, place, tmp_path
):
    (tmp_path / "copy.csv").write_bytes((place / "table.csv").read_bytes())
    found = cli("evaluate", by_column, "copy.csv", "--json")
    assert "copy.csv: the run was trained on this file" in found.err
    assert any("trained on this file" in remark for remark in found.document["remarks"])
    found = cli("evaluate", by_file, place / "rich.fa", place / "poor.fa")
    assert "rich.fa and 1 more: the run was trained on" in found.err


def test_labels_that_are_no_classes_of_the_run(cli, by_column, tmp_path):
    (tmp_path / "a.csv").write_text("dna,kind\nGGCC,Rich\nAATT,Poor\n")
    found = cli("evaluate", by_column, "a.csv")
    assert found.code == 1
    assert "none of the labels 'Rich', 'Poor' is a class of this run: 'poor', 'rich'" in found.err
    (tmp_path / "a.csv").write_text("dna,kind\nGGCC,rich\nAATT,Poor\n")
    found = cli("evaluate", by_column, "a.csv")
    assert found.code == 0 and "1 of 2 labels are no class of this run" in found.err
