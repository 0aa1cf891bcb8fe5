"""One text under all rows of a comparison: sums of bits, moved folders, what is refused."""

import json
import math
import shutil

import pytest

from regard import api
from regard.errors import UserError
from regard.look.page import Surprise, Table
from regard.look.surprise_page import compare_surprise, open_rows, surprise_page
from regard.pipelines import load


@pytest.fixture(scope="module")
def folder(tmp_path_factory, rows_here):
    base = tmp_path_factory.mktemp("compare")
    names = [a + b + c for a in "abcd" for b in "aeiou" for c in "lmnrs"]
    (base / "names.txt").write_text("\n".join(names) + "\n")
    out = base / "compared"
    api.compare(
        base / "names.txt",
        models=("unigram", "bigram"),
        out=out,
        minutes=2,
        progress=False,
        data={"format": "lines"},
    )
    return out


def test_the_strip_has_the_bits_of_every_row_and_their_sums(folder):
    strip = compare_surprise(folder, "bal")
    tokens, rows = strip
    assert "".join(tokens[:3]) == "bal" and {name for name, _ in rows} == {"unigram", "bigram"}
    for name, bits in rows:
        _, expected = load(folder / name).score("bal")
        assert bits == pytest.approx([-x / math.log(2) for x in expected])
    page = surprise_page(folder, strip)
    drawn, table = page.components
    assert isinstance(drawn, Surprise) and isinstance(table, Table)
    sums = {name: sum(bits) for name, bits in rows}
    assert table.rows[0][1] == pytest.approx(min(sums.values()))
    assert page.subtitle.startswith(min(sums, key=sums.get))


def test_a_held_out_text_is_read_without_one_and_a_folder_may_move(folder, tmp_path):
    moved = shutil.copytree(folder, tmp_path / "moved")
    assert all(run.parent == moved for run in open_rows(moved).values())
    tokens, _ = compare_surprise(moved, "")
    assert "".join(tokens[:-1]) == load(moved / "bigram").example(60)


def test_labels_and_half_a_pair_are_refused(folder, tmp_path):
    with pytest.raises(UserError, match="--target is for translators"):
        compare_surprise(folder, "bal", "x")
    document = json.loads((folder / "compare.json").read_text())
    labelled = {"rows": [{"model": "svm", "metrics": {"accuracy": {"value": 0.5}}}]}
    (tmp_path / "compare.json").write_text(json.dumps(document | labelled))
    with pytest.raises(UserError, match="no probability"):
        compare_surprise(tmp_path, "bal")
    (tmp_path / "compare.json").write_text(json.dumps(document | {"sentences": 3}))
    with pytest.raises(UserError, match="translators: give TEXT and --target"):
        compare_surprise(tmp_path, "bal")
