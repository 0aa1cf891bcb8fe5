"""Labelled records: where texts and targets come from, the task they suggest, and splits."""

import json
import random
import sys
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.data import Roles
from regard.data.labelled import ColumnSelection, LabelledFiles, class_of, columns_of
from regard.data.report import inspect_labelled
from regard.data.sources import DataSource
from regard.data.splits import assign
from regard.data.targets import OUTPUT_KINDS, UNDECIDED, Targets, number, survey
from regard.data.task_inference import suggest_task
from regard.errors import UsageError, UserError
from regard.recipe import DataRecipe, build, check

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
here = pytest.mark.skipif(not SHARED.exists(), reason="the shared data folder is not here")


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def read(source):
    """(text, targets) of every record."""
    return [
        pair for chunk in source.examples() for pair in zip(chunk.texts, chunk.targets, strict=True)
    ]


def opened(*paths, format="auto", strict=False, encoding="utf-8", **asked):
    return LabelledFiles(
        list(paths), ColumnSelection(**asked), format=format, strict=strict, encoding=encoding
    )


def labelled(recipe, task=""):
    """Return records whose labels are of a task, or not decided yet."""
    kind = OUTPUT_KINDS[task] if task else UNDECIDED
    return DataSource(recipe, Roles(input=True, labels=True), kind=kind)


# Where texts and targets come from


def test_columns_of_a_table_are_text_and_targets_with_gaps(write):
    path = write("t.csv", "id,text,y1,y2\n1, anna ,0,\n2,bob,,1\n3,carl,1,0\n")
    source = opened(path, targets=("y1", "y2"))
    assert read(source) == [("anna", ("0", "")), ("bob", ("", "1")), ("carl", ("1", "0"))]
    assert read(opened(path, inputs=("2",), targets=("3",)))[0] == ("anna", ("0",))
    assert suggest_task(source)[0] == "labels"


def test_two_texts_are_read_and_compared_as_one(write):
    path = write("t.tsv", "a\tb\tsame\nx y\tz\tyes\nx\ty z\tno\n")
    chunk = next(opened(path, inputs=("a", "b"), targets=("same",)).examples())
    assert (chunk.texts, chunk.sources) == (["x y", "x"], ["z", "y z"])
    assert len(set(chunk.keys())) == 2
    with pytest.raises(UsageError, match=r"data\.input names one column or two, got 3"):
        ColumnSelection(inputs=("a", "b", "c"))


def test_objects_may_hold_numbers_truth_and_nothing(write):
    rows = [
        {"text": "a", "y": 1, "z": 0.5},
        {"text": "b", "y": None, "z": 2},
        {"text": "c", "y": True, "z": "3"},
        {"text": "d", "z": 1e-5},
        {"text": 5, "y": 1, "z": 1},
        {"text": "e", "y": [1], "z": 1},
    ]
    source = opened(write("t.jsonl", "\n".join(map(json.dumps, rows))), targets=("y", "z"))
    expected = [("a", ("1", "0.5")), ("b", ("", "2")), ("c", ("true", "3")), ("d", ("", "1e-05"))]
    assert read(source) == expected
    assert source.skipped == 2
    assert "t.jsonl:5: expected text under 'text', got int" in source.problems[0]
    assert "t.jsonl:6: expected a text or a number under 'y', got list" in source.problems[1]


def test_a_header_of_fasta_gives_keys_ids_or_what_a_pattern_finds(write):
    path = write("s.fa", ">p1|AMP class=yes n=3\nMKV\n>p2|non class=no\nLL\n>p3|AMP n=1\nGG\n")
    source = opened(path, targets=("class",))
    assert read(source) == [("MKV", ("yes",)), ("LL", ("no",))]
    assert source.problems == []
    assert source.remarks == [f"1 row has no 'class' value and was skipped; first: {path}:5"]
    bars = opened(path, targets=("id",), pattern=r"\|(\w+)")
    assert [t for _, t in read(bars)] == [("AMP",), ("non",), ("AMP",)]
    whole = opened(path, targets=("header",), pattern="yes|no$")
    assert [t for _, t in read(whole)] == [("yes",), ("no",)]
    assert "'p3|AMP n=1' does not match data.pattern" in whole.problems[0]
    with pytest.raises(UsageError, match=r"no header has clas=….*did you mean 'class'"):
        opened(path, targets=("clas",))
    with pytest.raises(UsageError, match=r"data\.pattern = '\(' is no regular expression"):
        ColumnSelection(pattern="(")


def test_a_file_for_every_class_gives_its_name(write):
    pos, neg = write("pos.txt", "good\n\nfine\n"), write("neg.txt", "bad\n")
    source = opened(pos, neg)
    assert read(source) == [("good", ("pos",)), ("fine", ("pos",)), ("bad", ("neg",))]
    assert "pos.txt = pos, neg.txt = neg" in source.why
    assert source.blank == 1
    fa = opened(write("amp.fasta", ">a\nMK\n"), write("non.fasta", ">a\nLL\n"))
    assert read(fa) == [("MK", ("amp",)), ("LL", ("non",))]
    smi = opened(write("on.smi", "CCO x\n"), write("off.smi", "C\n"))
    assert read(smi) == [("CCO", ("on",)), ("C", ("off",))]
    tables = opened(write("a.csv", "text,n\nx,1\n"), write("b.csv", "text,n\ny,2\n"))
    assert read(tables) == [("x", ("a",)), ("y", ("b",))]
    with pytest.raises(UsageError, match=r"pos\.txt: where are the labels\? say --target COLUMN"):
        opened(pos)
    names = ["x.fa.gz", "x.pos", "dir/neg.txt", "a.b.csv"]
    assert [class_of(Path(n)) for n in names] == ["x", "x.pos", "neg", "a.b"]


def write_folder(folder, *names):
    folder.mkdir()
    for name in names:
        (folder / f"{name}.txt").write_text(f"held {name}\n")
    return str(folder)


def test_held_out_files_of_classes_go_by_name_or_by_order(write, tmp_path):
    files = {n: str(write(f"{n}.txt", f"{n} text\n")) for n in ("pos", "neg", "pos2", "neg2", "q")}
    for held, expected in ((["neg"], {"neg"}), (["pos2", "neg2"], {"pos", "neg"})):
        recipe = DataRecipe(
            train=(files["pos"], files["neg"]), test=tuple(files[n] for n in held), valid_fraction=0
        )
        sources = labelled(recipe, "label")
        found = {p.targets[0][0] for p in sources.chunks() if p.split == 2}
        assert found == expected
    held = write_folder(tmp_path / "held", "neg", "pos")  # sorted otherwise than training
    sources = labelled(DataRecipe(train=(files["pos"], files["neg"]), test=(held,)), "label")
    found = {(p.texts[0], p.targets[0][0]) for p in sources.chunks() if p.split == 2}
    assert found == {("held neg", "neg"), ("held pos", "pos")}
    odd = write_folder(tmp_path / "odd", "a", "b")  # a folder's files have no order of their own
    for paths in (tuple(files[n] for n in ("pos2", "neg2", "q")), (odd,)):
        with pytest.raises(
            UsageError, match=r"which classes do .* hold\? give one file for each of"
        ):
            labelled(DataRecipe(train=(files["pos"], files["neg"]), test=paths), "label")


def test_lines_begin_with_their_label(write):
    path = write("t.txt", b"DESC:manner How did\tit ?\n0 caf\xe9\n\nlone\n")
    source = opened(path, format="labelled", encoding="latin-1")
    assert read(source) == [("How did\tit ?", ("DESC:manner",)), ("café", ("0",))]
    assert (source.blank, source.problems) == (1, [f"{path}:4: the text is empty"])
    coarse = opened(path, format="labelled", encoding="latin-1", pattern="^([A-Z]+):")
    assert read(coarse) == [("How did\tit ?", ("DESC",))]


def test_labels_beside_fasta_go_by_id(write):
    path = write("s.fa", ">p1 x\nMKV\n>p2\nLL\n>p3\nGGGG\n")
    labels = write("l.csv", "id,kind,set\np1,a,train\np3,b,test\np9,a,train\n")
    source = opened(path, labels=labels)
    assert read(source) == [("MKV", ("a",)), ("GGGG", ("b",))]
    assert source.problems == [f"{path}:3: the id 'p2' is not in {labels}"]
    by_name = opened(path, labels=labels, targets=("kind",), asides=("set",))
    assert [c.asides for c in by_name.examples()] == [[("train",), ("test",)]]
    letters = write("l.fa", ">p1 SET=train\nHEC\n>p2 SET=test\nHH\n>p3 SET=train\nCCCC\n")
    source = opened(path, labels=letters, asides=("SET",))
    assert read(source) == [("MKV", ("HEC",)), ("LL", ("HH",)), ("GGGG", ("CCCC",))]
    with pytest.raises(UserError, match=r"two\.csv:3: the id 'p1' has two targets"):
        opened(path, labels=write("two.csv", "id,y\np1,a\np1,b\n"))
    with pytest.raises(UsageError, match=r"data\.labels goes by the ids of FASTA"):
        opened(write("t.csv", "text,y\na,1\n"), labels=labels)
    with pytest.raises(UsageError, match=r"data\.labels is a table of ids"):
        opened(path, labels=write("l.txt", "p1 a\n"))


@pytest.mark.parametrize(
    ("name", "content", "asked", "message"),
    [
        ("t.csv", "text,y\na,1\n", {"targets": ("z",)}, r"no column 'z' \(--target\); it has"),
        ("t.csv", "text,label\na,1\n", {"targets": ("lable",)}, "did you mean 'label'"),
        ("t.csv", "text,y\na,1\n", {"targets": ("7",)}, "no column 7 .*2 columns"),
        ("t.csv", "a,b,y\nx,x,1\nz,z,2\n", {"targets": ("y",)}, "which column holds the text"),
        ("t.txt", "anna\nbob\n", {"targets": ("y",)}, r"--target y names a column, but .* lines"),
        ("t.smi", "C x\n", {"targets": ("y",)}, r"read as smi"),
        ("t.fa", ">a y=1\nA\n", {"targets": ("y",), "inputs": ("q",)}, "which has one text alone"),
        (
            "t.txt",
            "a b.\n\nc d.\n\ne f.\n",
            {"targets": ("y",)},
            "running text .*data.format=lines",
        ),
    ],
)
def test_what_cannot_be_read_is_one_clear_line(write, name, content, asked, message):
    with pytest.raises(UsageError, match=message) as caught:
        opened(write(name, content), **asked)
    assert "\n" not in str(caught.value)


def test_damaged_rows_are_left_out_counted_and_named(write):
    path = write("t.csv", "text,y\na,1\nb\n,2\nc,\n,\nd,3,4\ne,5\n")
    source = opened(path, targets=("y",))
    assert read(source) == [("a", ("1",)), ("e", ("5",))]
    assert sorted(p.removeprefix(f"{path}:") for p in source.problems) == [
        "3: 1 fields, expected 2",
        "4: the text is empty",
        "7: 3 fields, expected 2",
    ]
    assert source.blank == 1
    with pytest.raises(UserError, match=r"t\.csv:3: 1 fields"):
        read(opened(path, targets=("y",), strict=True))


@pytest.mark.parametrize("cell", ["NA", "nan", "NaN", "N/A", "n/a", "?", "-", ""])
def test_a_cell_that_says_so_is_a_missing_target_and_no_damage(write, cell):
    path = write("t.csv", f"text,y\na,yes\nb,{cell}\nc,no\n")
    source = opened(path, targets=("y",))
    assert read(source) == [("a", ("yes",)), ("c", ("no",))]
    why = f" has '{cell}', which data.missing lists" if cell else ""
    assert source.remarks == [f"1 row has no 'y' value and was skipped; first: {path}:3{why}"]
    assert source.skipped == 0
    assert len(read(opened(path, targets=("y",), strict=True))) == 2
    kept = opened(path, targets=("y",), missing=())
    assert len(read(kept)) == (3 if cell else 2)
    gaps = opened(write("g.csv", f"text,a,b\nx,1,{cell}\n"), targets=("a", "b"))
    assert read(gaps) == [("x", ("1", ""))]


def test_minus_is_a_class_where_plus_is_one(write):
    rows = "".join(f"t{i},{'-' if i < 5 else '+'}\n" for i in range(9))
    source = opened(write("t.csv", "text,y\n" + rows), targets=("y",))
    assert Counter(t for _, (t,) in read(source)) == {"-": 5, "+": 4}
    assert source.remarks == []
    files = [write("NA.txt", "a\n"), write("-.txt", "b\n")]  # names of files are no cells
    assert read(opened(*files)) == [("a", ("NA",)), ("b", ("-",))]


def test_the_numbers_of_a_column_are_read_in_its_own_notation(write):
    path = str(write("t.csv", "text;y\na;1,5\nb;-0,25\nc;<3,54\nd;1.234,5\ne;2.000\nf;n.d.\n"))
    other = str(write("v.csv", "text;y\ng;3.000\n"))  # as training writes it
    recipe = DataRecipe(train=(path,), valid=(other,), target="y", test_fraction=0)
    assert suggest_task(labelled(recipe).train)[0] == "value"
    sources = labelled(recipe, "value")
    found = [
        (text, t) for p in sources.chunks() for text, t in zip(p.texts, p.targets, strict=True)
    ]
    assert [float(t) for _, (t,) in found] == [1.5, -0.25, 1234.5, 2000, 3000]
    assert sources.train.remarks == [
        "1 row has a censored 'y' value (a bound, not a number) and was skipped; first: "
        f"{path}:4 has '<3,54'",
        f"1 row has text instead of a number in column 'y' and was skipped; first: {path}:7 has "
        "'n.d.'",
        "column 'y' is written with decimal commas and points between thousands: '1,5' "
        f"({path}:2) was read as 1.5",
    ]
    everything = str(write("u.csv", "text,y\na,NA\nb,?\n"))
    with pytest.raises(UserError, match=r"no record can be used: 2 rows have no 'y' value"):
        read(labelled(DataRecipe(train=(everything,), target="y"), "value").train)


def test_classes_that_are_numbers_but_for_a_few_are_still_classes(write):
    rows = "".join(f"t{i},{'?x' if i == 7 else i % 2}\n" for i in range(60))
    assert suggest_task(opened(write("t.csv", "text,y\n" + rows), targets=("y",)))[0] == "label"


# What the targets mean


@pytest.mark.parametrize(
    ("cells", "task"),
    [
        (["0", "1"] * 5, "label"),
        (["1", "2", "3", "4", "5"] * 4, "label"),  # stars
        ([str(i) for i in range(40)], "value"),
        (["1", "2", "3"], "value"),  # too few to be classes
        (["0.5", "1.5"] * 9, "value"),
        (["0.5", "n/a", *map(str, range(20))], "value"),
        (["yes", "no"] * 3, "label"),
        (["spam", "ham", "spam"], "label"),
        (["eine Katze", "ein Hund", "ein Haus", "zwei"], "target"),
    ],
)
def test_the_task_is_suggested_by_the_targets(write, cells, task):
    rows = [json.dumps({"text": f"text number {i}", "y": c}) for i, c in enumerate(cells)]
    found, why = suggest_task(opened(write("t.jsonl", "\n".join(rows)), targets=("y",)))
    assert found == task
    assert "'y'" in why


def test_targets_as_long_as_their_texts_label_positions(write):
    rows = "MKVLAG,HHECCC\nGGAAT,HHEEC\n"
    path = write("t.csv", "text,y\n" + rows)
    assert suggest_task(opened(path, targets=("y",)))[0] == "position-label"
    backwards = "".join(f"{w},{w[::-1]}\n" for w in ("abcdefghij", "klmnopqrst", "uvwxyzabcd"))
    assert (
        suggest_task(opened(write("u.csv", "text,y\n" + backwards), targets=("y",)))[0] == "target"
    )


def test_several_targets_are_labels_values_or_refused(write):
    def of(a, b):
        rows = "".join(f"text {i},{x},{y}\n" for i, (x, y) in enumerate(zip(a, b, strict=True)))
        return opened(write("t.csv", "text,a,b\n" + rows), targets=("a", "b"))

    assert suggest_task(of(["0", "1", "", "1"], ["no", "yes", "no", ""]))[0] == "labels"
    assert suggest_task(of(["0.1", "2", "", "1"], ["4", "3", "9", ""]))[0] == "value"
    with pytest.raises(UsageError, match=r"'b' has 4, such as 'p'"):
        suggest_task(of(["0", "1", "0", "1"], ["p", "q", "r", "s"]))


def test_a_task_checks_its_targets_and_names_the_line(write):
    path = str(write("t.csv", "text,y\nab,1\ncd,inf\nef,x\ngh,-2e3\n"))
    value = labelled(DataRecipe(train=(path,), target="y"), "value").train
    assert [t for _, t in read(value)] == [("1",), ("-2e3",)]
    text = "2 rows have text instead of a number in column 'y' and were skipped"
    assert value.remarks == [f"{text}; first: {path}:3 has 'inf'"]
    strict = labelled(DataRecipe(train=(path,), target="y", strict=True), "value").train
    with pytest.raises(UserError, match=r"t\.csv:3: 'inf' in column 'y' is not a number; leave"):
        read(strict)
    positions = labelled(DataRecipe(train=(path,), target="y"), "position-label").train
    with pytest.raises(UserError, match=r"all 4 .*t\.csv:2: 1 labels for 2 symbols"):
        read(positions)
    with pytest.raises(ValueError, match="not a number"):
        OUTPUT_KINDS["value"].check("", ("", "1", "inf"), ("a", "b", "c"))
    with pytest.raises(ValueError, match="2 labels for 1 symbols"):
        OUTPUT_KINDS["position-label"].check("x", ("HH",), ("y",))
    assert [number(c) for c in ("1e3", " 2 ", "1_0", "", "inf")] == [1000.0, 2.0, None, None, None]


class Chunk:
    """Targets and nothing else."""

    def __init__(self, *targets):
        self.targets, self.texts = targets, ["" for _ in targets]


def learned(task, names, *rows, positive=""):
    return Targets.learn(task, names, survey([Chunk(*rows)], len(names)), positive)


def test_the_positive_class_is_the_rarer_of_two_or_the_one_named():
    """It was the last by the alphabet: `free` where 1 of 100 records is `bound`."""
    rows = [("free",)] * 9 + [("bound",)]
    found = learned("label", ["y"], *rows)
    assert found.positive == ("bound",) and found.place_of_positive() == 0
    assert learned("label", ["y"], *rows, positive="free").place_of_positive() == 1
    assert learned("label", ["y"], ("a",), ("b",)).positive == ("b",)  # as many of both
    three = [("a",), ("b",), ("c",)]
    assert learned("label", ["y"], *three).place_of_positive() is None
    assert learned("label", ["y"], *three, positive="b").place_of_positive() == 1
    with pytest.raises(UsageError, match=r"data.positive = 'x' is no class; .* are bound, free"):
        learned("label", ["y"], *rows, positive="x")
    several = learned("labels", ["p", "q"], ("0", "no"), ("1", "yes"), ("1", "yes"), positive="1")
    assert several.positive == ("1", "no")  # named, and the rarer
    places = learned("position-label", ["y"], ("HHHC",), ("HC?",))
    assert places.positive == ("C",)
    with pytest.raises(UsageError, match="names a class; values have none"):
        learned("value", ["y"], ("0.5",), positive="1")
    assert Targets.stored({"task": "label", "names": ["y"], "classes": [["a", "b"]]}) == (
        learned("label", ["y"], ("a",), ("b",))
    )  # of runs made before


def test_deviations_of_values_are_those_of_the_numbers_there_are():
    numbers_of = np.random.default_rng(0).normal(1e6, 2.0, 50)
    rows = [(repr(float(x)), "") for x in numbers_of] + [("", "3")]
    found = learned("value", ["a", "b"], *rows)
    assert found.deviations == pytest.approx((numbers_of.std(), 0.0))


def test_classes_are_ordered_and_encoded(write):
    label = learned("label", ["y"], ("10",), ("9",), ("10",))
    assert label.classes == (("9", "10"),)  # by value
    assert label.encode([("10",), ("9",), ("8",)]).tolist() == [1, 0, -1]
    words = learned("label", ["y"], ("b",), ("10",))
    assert words.classes == (("10", "b"),)
    labels = learned("labels", ["a", "b"], ("0", "no"), ("1", ""), ("", "yes"))
    assert labels.encode([("1", "no"), ("", "yes")]).tolist() == [[1, 0], [-1, 1]]
    value = learned("value", ["a", "b"], ("0.5", ""))
    found = value.encode([("0.5", ""), ("-1", "2")])
    assert found.dtype == np.float32
    assert np.array_equal(found, np.array([[0.5, np.nan], [-1, 2]], np.float32), equal_nan=True)
    places = learned("position-label", ["y"], ("HEC",), ("CC",))
    assert places.classes == (("C", "E", "H"),)
    assert places.encode([("HC",), ("EX",)]).tolist() == [2, 0, 1, -1]
    with pytest.raises(UsageError, match="each column has two values, 'a' has 3: 1, 2, 3"):
        learned("labels", ["a"], ("1",), ("2",), ("3",))
    with pytest.raises(UsageError, match=r"--task label has one target, got --target a,b"):
        learned("label", ["a", "b"], ("1", "2"))
    with pytest.raises(UsageError, match="did you mean 'labels'"):
        build({"task": {"name": "lables"}})


# Splits


def splits(write, text, task="label", **keys):
    """The split of every text of a table."""
    path = write("t.csv", text)
    sources = labelled(check("data", DataRecipe, {"train": str(path), **keys}), task)
    return {t: p.split for p in sources.chunks() for t in p.texts}


def rows(n, extra=""):
    return "text,y,g\n" + "".join(f"t{i},{'ab'[i % 4 == 0]},g{i % 7}{extra}\n" for i in range(n))


def test_a_split_column_decides(write):
    table = "text,y,set,check\na,1,train,\nb,2,Train,True\nc,1,test,\nd,2,dev,\n"
    assert splits(write, table, target="y", split="set") == {"a": 0, "b": 0, "c": 2, "d": 1}
    assert splits(write, table, target="y", split="set,check")["b"] == 1
    with pytest.raises(UserError, match=r"t\.csv:3: 'x' under 's' names no split; write train"):
        splits(write, "text,y,s\na,0,0\nb,1,x\n", target="y", split="s")
    with pytest.raises(UsageError, match=r"no column 'sett'.*did you mean 'set'"):
        splits(write, table, target="y", split="sett")
    with pytest.raises(UsageError, match=r"data\.split says which records"):
        splits(write, table, target="y", split="set", test=[str(write("o.csv", table))])


def test_small_classes_are_in_every_split_by_default(write):
    """By hash alone, 1 of 13 records of a class was held out, or none."""
    text = "text,y\n" + "".join(
        f"t{i},{'rare' if i % 100 == 0 else 'common'}\n" for i in range(1300)
    )
    text += "".join(f"u{i},some\n" for i in range(60)) + "alone,one\n"
    for seed in range(6):
        found = splits(write, text, target="y", split_seed=seed)
        rare = [found[f"t{i}"] for i in range(0, 1300, 100)]
        assert np.bincount(rare).tolist() == [11, 1, 1]
        assert np.bincount([found[f"u{i}"] for i in range(60)]).tolist() == [54, 3, 3]
        assert found["alone"] == 0  # it could be measured of no model
        large = [text for text in found if text[0] == "t" and int(text[1:]) % 100]
        assert [found[text] for text in large] == assign(large, 0.05, 0.05, seed).tolist()
    lines = text.splitlines()
    turned = "\n".join([lines[0], *reversed(lines[1:])]) + "\n"
    assert splits(write, turned, target="y", split_seed=5) == found  # not the order of rows
    by_hash = splits(write, text, target="y", split="random")
    assert list(by_hash.values()) == assign(list(by_hash), 0.05, 0.05).tolist()
    values = "text,y\n" + "".join(f"t{i},{i}.5\n" for i in range(300))
    numbers_of = splits(write, values, "value", target="y")
    assert list(numbers_of.values()) == assign(list(numbers_of), 0.05, 0.05).tolist()


def test_of_several_labels_the_rarest_is_in_every_split(write):
    rng = random.Random(3)
    text = "text,p,q\n" + "".join(
        f"t{i},{int(rng.random() < 0.5)},{int(i % 40 == 0)}\n" for i in range(1200)
    )
    found = splits(write, text, "labels", target="p,q")
    rare = [found[f"t{i}"] for i in range(0, 1200, 40)]
    assert np.bincount(rare).tolist() in ([27, 1, 2], [27, 2, 1], [26, 2, 2])


def test_what_pretraining_may_not_see_is_what_labels_hold_out(write):
    text = "text,y\n" + "".join(f"t{i},{'ab'[i % 9 == 0]}\n" for i in range(200))
    assert splits(write, text, "masked", target="y") == splits(write, text, "label", target="y")


def test_a_stratified_split_keeps_the_shares(write):
    found = splits(write, rows(200), target="y", split="stratified", valid_fraction=0.1)
    b = Counter(split for text, split in found.items() if int(text[1:]) % 4 == 0)
    assert (b[0], b[1] + b[2]) in {(42, 8), (43, 7)}
    assert sum(split == 1 for split in found.values()) == 20
    other = splits(write, rows(200), target="y", split="stratified", split_seed=1)
    assert other != found
    with pytest.raises(UsageError, match="most targets are different"):
        splits(write, "text,y\na,1\nb,2\nc,3\n", "value", target="y", split="stratified")


def test_groups_stay_together_and_with_copies(write):
    keys = {"target": "y", "group": "g", "valid_fraction": 0.3, "test_fraction": 0.2}
    found = splits(write, rows(70), **keys)
    by_group = {g: {s for t, s in found.items() if int(t[1:]) % 7 == g} for g in range(7)}
    assert all(len(s) == 1 for s in by_group.values())
    assert {s for found in by_group.values() for s in found} == {0, 1, 2}


MOLECULES = ["a1", "b1", "a2", "c1", "a3", "bad", "a1"]


def test_scaffolds_are_asked_of_rdkit(write, monkeypatch):
    """RDKit stands in for itself here: a molecule's scaffold is its first letter."""
    rdkit, chem, scaffolds = (ModuleType(f"rdkit{n}") for n in ("", ".Chem", ".Chem.Scaffolds"))
    chem.MolFromSmiles = lambda text: None if text == "bad" else text
    scaffolds.MurckoScaffold = SimpleNamespace(
        MurckoScaffoldSmiles=lambda mol, includeChirality: mol[0]
    )
    rdkit.Chem, rdkit.rdBase = chem, SimpleNamespace(BlockLogs=nullcontext)
    for name, module in (("", rdkit), (".Chem", chem), (".Chem.Scaffolds", scaffolds)):
        monkeypatch.setitem(sys.modules, f"rdkit{name}", module)
    rows = "".join(f"{text},{i % 2}\n" for i, text in enumerate(MOLECULES))
    keys = {"target": "y", "split": "scaffold", "valid_fraction": 0.2, "test_fraction": 0.2}
    found = splits(write, "text,y\n" + rows, **keys)
    # Of 7: a has 4 and trains (4.2 fit); of the rest the last validates (5.6).
    assert found == {"a1": 0, "a2": 0, "a3": 0, "b1": 2, "c1": 2, "bad": 1}
    path = write("t.csv", "text,y\n" + rows)
    sources = labelled(DataRecipe(train=(str(path),), target="y", split="scaffold"), "label")
    assert ("scaffolds", "1 are no molecules to RDKit, the first 'bad'") in inspect_labelled(
        sources
    ).rows()


def test_folds_test_each_record_once_and_validate_by_others(write):
    tested, validated = Counter(), Counter()
    for fold in range(5):
        keys = {"target": "y", "folds": 5, "fold": fold, "split": "stratified"}
        found = splits(write, rows(43), **keys)
        tested.update(text for text, split in found.items() if split == 2)
        own = [text for text, split in found.items() if split == 1]
        validated.update(own)
        assert own
    assert len(tested) == 43 and set(tested.values()) == {1}
    assert len(validated) > 2 * len(own) and max(validated.values()) < 5  # not the same few
    alone = splits(write, "text,y\na,1\nb,2\nc,1\n", target="y", folds=-1, fold=1, valid_fraction=0)
    assert alone == {"a": 0, "b": 2, "c": 0}
    with pytest.raises(UsageError, match=r"data\.fold must be below the 3 folds"):
        splits(write, "text,y\na,1\nb,2\nc,1\n", target="y", folds=-1, fold=3)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"folds": 1}, "folds must be 0"),
        ({"folds": 3, "fold": 3}, "fold must be"),
        ({"fold": 1}, "fold must be"),
        ({"target": "y", "folds": 3, "split": "scaffold"}, "cannot be joined"),
        ({"target": "y", "group": "g", "split": "g"}, "cannot be joined"),
        ({"target": "y", "split": "a,b,c"}, "one column or two"),
    ],
)
def test_plans_that_make_no_sense_are_refused(write, keys, message):
    with pytest.raises(UsageError, match=message):
        splits(write, rows(9), **keys)


def test_plans_are_for_labelled_records(write):
    path = str(write("a.txt", "anna\nbob\n"))
    for keys in ({"split": "stratified"}, {"folds": 2}, {"group": "g"}, {"pattern": "x"}):
        with pytest.raises(UsageError, match=f"data.{next(iter(keys))}.* labelled records"):
            DataSource(DataRecipe(train=(path,), **keys), Roles(output=True))


def test_the_same_input_in_two_splits_is_a_leak(write):
    path = write("t.csv", "text,y,set\nsame,1,train\nsame,0,test\nother,1,test\nx,0,valid\n")
    sources = labelled(DataRecipe(train=(str(path),), target="y", split="set"), "label")
    leaks = sources.leaks()
    assert leaks == {
        "valid": {"records": 0, "examples": []},
        "test": {"records": 1, "examples": ["same"]},
    }


def test_columns_are_named_with_commas():
    assert columns_of(" a, b ,,c") == ("a", "b", "c")
    assert columns_of("") == ()


# Any bytes at all

PIECES = [
    b"text",
    b"y",
    b",",
    b"\t",
    b"\n",
    b" ",
    b">",
    b"a",
    b"AC",
    b"1",
    b"0.5",
    b'"',
    b"=",
    b"{",
]
PIECES += [
    b'{"text":"a","y":1}\n',
    b"text,y\n",
    b">a y=1\nAC\n",
    b"a,1\n",
    b"b,2\n",
    b"\xff",
    b"train",
]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    content=st.lists(st.sampled_from(PIECES), max_size=25).map(b"".join),
    task=st.sampled_from(["label", "labels", "value", "position-label"]),
    keys=st.sampled_from(
        [{}, {"split": "stratified"}, {"folds": 2}, {"split": "y"}, {"group": "y"}]
    ),
)
@pytest.mark.parametrize("format", ["csv", "tsv", "jsonl", "fasta", "labelled"])
def test_only_user_errors_escape_labelled_records(write, format, content, task, keys):
    path = write("fuzz", content)
    target = {} if format == "labelled" else {"target": "y"}
    try:
        recipe = DataRecipe(train=(str(path),), format=format, **target, **keys)
        sources = labelled(recipe, task)
        found = inspect_labelled(sources)
    except UserError as error:
        assert "\n" not in str(error)
    else:
        total = sum(len(chunk.texts) for chunk in sources.train.examples())
        assert sum(found.records.values()) == total > 0
        assert json.loads(json.dumps(found.to_json(), allow_nan=False))["task"] == task


def test_a_file_of_labels_counts_among_the_data(write):
    path, labels = write("s.fa", ">p\nMK\n"), write("l.csv", "id,y\np,a\n")
    before = opened(path, labels=labels).hashes()[0]
    assert opened(path, labels=write("l.csv", "id,y\np,b\n")).hashes()[0] != before
    with pytest.raises(UserError, match=r"m\.csv: no such file or folder; did you mean 'l\.csv'"):
        opened(path, labels=labels.with_name("m.csv"))


# Real files


@here
@pytest.mark.parametrize(
    ("files", "keys", "task", "counts"),
    [
        (
            ["textclass/trec/train.txt"],
            {"format": "labelled", "encoding": "latin-1"},
            "label",
            5452,
        ),
        (["textclass/sst2/stsa.binary.dev"], {"format": "labelled"}, "label", 872),
        (["textclass/mr/rt-polarity.pos", "textclass/mr/rt-polarity.neg"], {}, "label", 10662),
        (
            ["dna/uci_splice/splice.data"],
            {"format": "csv", "input": "3", "target": "1"},
            "label",
            3190,
        ),
        (
            ["dna/uci_promoters/promoters.data"],
            {"format": "csv", "input": "3", "target": "1"},
            "label",
            106,
        ),
        (["moleculenet/bace.csv"], {"target": "Class"}, "label", 1513),
        (["moleculenet/freesolv.csv"], {"target": "freesolv"}, "value", 642),
    ],
)
def test_real_sets_are_read_whole(files, keys, task, counts):
    train = tuple(str(SHARED / name) for name in files)
    source = labelled(DataRecipe(train=train, **keys)).train
    columns = survey(source.examples(), 1)
    assert (columns[0].filled, source.skipped) == (counts, 0)
    assert suggest_task(source)[0] == task
    if "splice" in files[0]:
        assert columns[0].different == {"N": 1655, "EI": 767, "IE": 768}
        assert {len(text) for chunk in source.examples() for text in chunk.texts} == {60}


@here
def test_flip_has_its_own_splits():
    archive = SHARED / "protein/flip_gb1/splits.zip"
    recipe = DataRecipe(
        train=(f"{archive}:splits/two_vs_rest.csv",), target="target", split="set,validation"
    )
    found = Counter(p.split for p in labelled(recipe, "value").chunks() for _ in p.texts)
    assert found == {0: 381, 1: 43, 2: 8309}


@pytest.mark.parametrize(
    ("stored", "problem"),
    [
        ({"task": "label", "names": ["y"], "classes": []}, "1 names and classes of 0 do not fit"),
        ({"task": "label", "names": ["y"], "classes": [[]]}, "one class at least"),
        ({"task": "labels", "names": [], "classes": []}, "must name one target"),
        ({"task": "value", "names": ["y"], "classes": [["a"]]}, "classes of 1 do not fit"),
        ({"task": "label", "names": ["y"], "classes": [["a", "a"]]}, "classes must differ"),
        ({"task": "sums", "names": ["y"], "classes": []}, "task must be one of label"),
    ],
)
def test_stored_targets_that_do_not_fit_together_are_refused(stored, problem):
    with pytest.raises(ValueError, match=problem):
        Targets.stored(stored)
