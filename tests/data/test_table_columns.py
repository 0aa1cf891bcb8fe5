"""The columns of a table, found by their content; where several fit, the error lists them."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from regard.data.table_columns import (
    column_like,
    columns_in,
    complete_data,
    expand_patterns,
    kind_of,
)
from regard.data.text_files import TextFiles
from regard.errors import UsageError, UserError
from regard.recipe import DataRecipe

RANDOM = random.Random(0)
CHAINS = ["C" * n + tail for n in range(1, 11) for tail in ("C(=O)O", "CN", "c1ccccc1", "C#N")]
MOLECULES = [RANDOM.choice(CHAINS) for _ in range(60)]
BASES = ["".join(RANDOM.choices("ACGT", k=12)) for _ in range(60)]
PEPTIDES = ["".join(RANDOM.choices("ACDEFGHIKLMNPQRSTVWY", k=25)) for _ in range(60)]
WORDS = ["the", "a", "cat", "dog", "saw", "ran", "to", "from"]
PROSE = [" ".join(RANDOM.choices(WORDS, k=9)) for _ in range(60)]


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (MOLECULES, "SMILES"),
        (BASES, "nucleotides"),
        (PEPTIDES, "residues"),
        (PROSE, "text"),
        (WORDS * 9, "8 classes"),
        (["CAT", "ACT", "TAG"] * 20, "3 classes"),  # not DNA
        (["C", "N", "O", "S"] * 20, "4 classes"),  # not molecules
        (["EI", "IE", "N"] * 20, "3 classes"),
        (["+", "-"] * 9, "2 classes"),
        (["0", "1", "NA", ""] * 9, "2 classes"),
        ([f"{i / 7:.2f}" for i in range(30)], "numbers"),
        ([f"{i / 7:.2f}".replace(".", ",") for i in range(30)], "numbers"),
        (["<3.5", "12", "7.25", "~8"] * 9, "numbers"),
        ([f"{i / 7:.2f} nM" for i in range(30)], "numbers with the unit nM, to be removed first"),
        (
            [f"{i / 7:.2f}{' nM' if i % 3 else 'uM'}" for i in range(30)] + ["1e3 nM", "7"],
            "numbers in different units: uM (10 rows), nM (21 rows), none (1 rows); convert them "
            "to one, and remove it",
        ),
        ([str(i) for i in range(1, 31)], "id"),
        ([f"CHEMBL{i * 17}" for i in range(30)], "id"),
        ([f"2024-01-{i + 1:02}" for i in range(28)], "dates"),
        (["2024-01-01", "2024-01-02"] * 14, "dates"),
        (["train"] * 20 + ["test"] * 5, "split"),
        (["x"] * 9, "constant"),
        (["", "NA", "?"], "empty"),
        ([f"a/{i}.png" for i in range(9)], "paths of images"),
        ([], "empty"),
    ],
)
def test_content_tells_what_a_column_is(cells, kind):
    assert kind_of(cells).name == kind


@pytest.fixture
def table(tmp_path):
    def table(**columns):
        rows = zip(*columns.values(), strict=True)
        lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
        (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
        return DataRecipe(train=(str(tmp_path / "t.csv"),))

    return table


NUMBERS = [f"{RANDOM.gauss(0, 1):.2f}" for _ in range(60)]
CLASSES = [RANDOM.choice(["active", "inactive"]) for _ in range(60)]
IDS = [f"M{i:03}" for i in range(60)]


def test_a_letter_for_each_position_is_a_target(table):
    """The structures of proteins were left out, and the residues alone read."""
    proteins = ["".join(RANDOM.choices("ACDEFGHIKLMNPQRSTVWY", k=n)) for n in range(20, 80)]
    structures = ["".join(RANDOM.choices("HEC", k=len(one))) for one in proteins]
    settings, (line,) = complete_data(table(id=IDS, sequence=proteins, ss=structures))
    assert settings == {"input": "sequence", "target": "ss"}
    assert "'ss' (a label for each position)" in line
    shorter = [one[1:] for one in structures]
    assert "target" not in complete_data(table(sequence=proteins, ss=shorter))[0]


def test_the_only_reading_is_taken_and_said(table):
    """A CSV without --target trained a language model, and a column called mol was characters."""
    settings, (line,) = complete_data(table(id=IDS, mol=MOLECULES, logS=NUMBERS))
    assert settings == {"input": "mol", "target": "logS"}
    assert line.startswith("t.csv → input 'mol' (SMILES), target 'logS' (numbers); others: 'id'")


def test_several_readings_are_listed_and_nothing_is_chosen(table):
    with pytest.raises(UsageError, match="which column is predicted from 'mol'") as error:
        complete_data(table(mol=MOLECULES, logS=NUMBERS, active=CLASSES))
    details = "\n".join(error.value.details)
    assert error.value.exit_code == 2 and "target: logS (numbers: " in details
    assert "target: active (2 classes: " in details
    assert "say --input mol --target logS" in details and "--task next --input mol" in details


def test_the_task_narrows_the_targets(table):
    data = table(mol=MOLECULES, logS=NUMBERS, active=CLASSES)
    assert complete_data(data, "label")[0] == {"input": "mol", "target": "active"}
    assert complete_data(data, "value")[0] == {"input": "mol", "target": "logS"}
    assert complete_data(data, "next") == ({"input": "mol"}, [])


def test_a_sequence_is_read_rather_than_a_name(table):
    names = ["".join(RANDOM.choices("abcdefghij", k=9)) for _ in range(60)]
    data = table(name=names, seq=BASES, y=CLASSES)
    assert complete_data(data)[0] == {"input": "seq", "target": "y"}
    assert complete_data(table(name=names, y=CLASSES))[0] == {"input": "name", "target": "y"}


def test_two_texts_are_a_question_whatever_their_names(table):
    with pytest.raises(UsageError, match="which columns are read and predicted") as error:
        complete_data(table(en=PROSE, de=PROSE[::-1]))
    assert "say --input en --target de" in error.value.details
    data = table(text=PROSE, title=PROSE[::-1], y=CLASSES)
    with pytest.raises(UsageError, match="which columns"):
        complete_data(data)
    given = DataRecipe(train=data.train, target="y")  # the name breaks the tie
    assert complete_data(given)[0] == {"input": "text"}


def test_one_text_column_stays_a_language_model(table, tmp_path):
    assert complete_data(table(id=IDS, word=PROSE)) == ({"input": "word"}, [])
    assert complete_data(table(text=PROSE)) == ({}, [])
    (tmp_path / "a.txt").write_text("\n".join(PROSE))
    assert complete_data(DataRecipe(train=(str(tmp_path / "a.txt"),))) == ({}, [])


def test_splits_ids_and_dates_are_set_aside(table):
    days = [f"2024-{i // 28 + 1:02}-{i % 28 + 1:02}" for i in range(60)][::-1]
    part = ["train"] * 50 + ["test"] * 10
    data = table(row=range(60), day=days, set=part, text=PROSE, y=CLASSES)
    assert complete_data(data)[0] == {"input": "text", "target": "y"}


def test_patterns_stand_for_columns(table):
    data = table(**{"smiles": MOLECULES, "NR-AR": CLASSES, "NR-ER": CLASSES, "SR-p53": CLASSES})
    path, options = DataRecipe(train=data.train), {"train": data.train}
    settings, lines = complete_data(DataRecipe(**options, target="NR-*"))
    assert settings == {"input": "smiles", "target": "NR-AR,NR-ER"}
    assert lines == ["--target NR-* stands for NR-AR,NR-ER"]
    settings, _ = complete_data(DataRecipe(**options, target="SR-p53,NR-A?"))
    assert settings["target"] == "SR-p53,NR-AR"
    with pytest.raises(UsageError, match=r"no column matches 'X\*'.*it has smiles, NR-AR"):
        complete_data(DataRecipe(**options, target="X*"))
    with pytest.raises(UsageError) as error:
        complete_data(path)
    assert " or --input smiles --target 'NR-*'" in error.value.details


def test_a_name_with_a_star_is_a_name(tmp_path):
    (tmp_path / "t.csv").write_text("text,y*,yz\n" + "a b,1,2\n" * 4)
    assert expand_patterns("y*", tmp_path / "t.csv", "csv") == "y*"


def test_columns_of_json_lines_that_hold_lists_are_left_out(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"text": "a b", "n": 1, "tags": []}\n{"text": "c", "ok": true}\n' * 3)
    assert [column.name for column in columns_in(path, "jsonl")] == ["text", "n", "ok"]


def test_a_pretraining_table_needs_no_column_of_the_same_name(table, tmp_path):
    (tmp_path / "mols.txt").write_text("\n".join(MOLECULES))
    source = TextFiles([tmp_path / "mols.txt"])
    assert column_like(table(code=IDS, structure=MOLECULES, lipo=NUMBERS), source) == "structure"
    with pytest.raises(UsageError, match="no column holds texts like those"):
        column_like(table(text=PROSE, y=CLASSES), source)
    with pytest.raises(UsageError, match="columns a, b hold"):
        column_like(table(a=MOLECULES, b=MOLECULES, y=NUMBERS), source)
    assert column_like(DataRecipe(train=(str(tmp_path / "mols.txt"),)), source) == ""


def test_a_target_with_units_is_refused_with_the_units_and_their_rows(table):
    """SMILES and a potency in nM and uM were a translator that wrote digits and letters."""
    potency = [f"{i + 0.5} {'uM' if i % 4 == 0 else 'nM'}" for i in range(60)]
    recipe = replace(table(smiles=MOLECULES, potency=potency), target="potency")
    for given in (recipe, replace(recipe, input="smiles")):
        with pytest.raises(UsageError, match=r"'potency' holds .* uM \(15 rows\), nM \(45 rows\)"):
            complete_data(given)
        assert complete_data(given, "target")  # as texts, if that is meant


def test_a_column_that_names_different_units_is_remarked(table):
    units = ["nM"] * 40 + ["uM"] * 20
    recipe = table(smiles=MOLECULES, standard_value=NUMBERS, standard_units=units)
    _, lines = complete_data(replace(recipe, input="smiles", target="standard_value"))
    assert "'standard_units' names different units: nM (40 rows), uM (20 rows)" in lines[0]
    same = table(smiles=MOLECULES, standard_value=NUMBERS, standard_units=["nM"] * 60)
    assert complete_data(replace(same, input="smiles", target="standard_value"))[1] == []


def test_names_in_another_encoding_are_refused_with_it(tmp_path):
    """They were shown with a mark in place of each letter that is not ASCII."""
    path = tmp_path / "t.csv"
    rows = [f"Straße {i} ist schön;{'gut' if i % 2 else 'schlecht'}" for i in range(30)]
    for encoding, text in (("latin-1", "Größe"), ("cp1252", "Preis in €")):
        path.write_bytes("\n".join([f"{text};Urteil", *rows, ""]).encode(encoding))
        with pytest.raises(UserError, match=f"{text};Urteil.*data.encoding={encoding}"):
            complete_data(DataRecipe(train=(str(path),)))
        settings, _ = complete_data(DataRecipe(train=(str(path),), encoding=encoding))
        assert settings == {"input": text, "target": "Urteil"}
    path.write_bytes("\n".join(["größe;urteil", *rows, "\xff"]).encode())  # one is damaged
    assert complete_data(DataRecipe(train=(str(path),)))[0]["input"] == "größe"


def test_conversations_beside_a_class_are_told(tmp_path):
    """The message named the class and the id, and not the column that all came for."""
    path = tmp_path / "chats.jsonl"
    messages = [{"role": "user", "content": "hello"}]
    rows = [{"id": f"c{i}", "messages": messages, "topic": "ab"[i % 2]} for i in range(30)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UsageError, match="conversations under 'messages'"):
        complete_data(DataRecipe(train=(str(path),)))


@pytest.mark.parametrize(("umlauts", "refused"), [(1, False), (30, True)])
def test_many_lines_that_are_not_utf8_are_another_encoding(tmp_path, umlauts, refused):
    """A third of the classes of a Latin-1 table were listed with a sign for what was lost."""
    lines = ["text;kind", *(f"line {i};{'süß' if i < umlauts else 'sour'}" for i in range(100))]
    path = tmp_path / "latin.csv"
    path.write_bytes("\n".join([*lines, ""]).encode("latin-1"))
    if refused:
        with pytest.raises(UserError, match=r"data\.encoding=latin-1"):
            columns_in(path, "csv")
    else:
        assert [column.name for column in columns_in(path, "csv")] == ["text", "kind"]
