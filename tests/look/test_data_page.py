"""The page of `regard data`: the answer first, figures for texts, rows for any data."""

import pytest

from regard.data.report import inspect
from regard.data.text_files import TextFiles
from regard.look.data_page import data_page, fill_names
from regard.look.page import Bars, Histogram, Lines, Table


class Rows:
    def rows(self):
        return [("read as", "a thing"), ("try", "regard train FILE"), ("", "because")]


def test_a_report_of_rows_is_a_page_whose_first_words_are_the_suggestion():
    page = data_page(Rows(), ["a.csv"])
    assert page.subtitle == "regard train FILE"
    text, table = page.components
    assert text.paragraphs() == ["regard train FILE", "because"]
    assert table.rows == [["read as", "a thing"], ["try", "regard train FILE"], ["", "because"]]
    assert fill_names([("", "x"), ("a", "y"), ("", "z")])[2] == ("a", "z")


def test_texts_have_their_alphabet_entropy_and_lengths_drawn(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("anna\nbob <b>\n" + "hannah\n" * 20)
    report = inspect(TextFiles([path]))
    page = data_page(report, ["a.txt"])
    kinds = [type(c) for c in page.components]
    assert kinds.count(Table) == 3 and {Bars, Lines, Histogram} <= set(kinds)
    (copies,) = (c for c in page.components if isinstance(c, Table) and "times" in c.columns)
    assert copies.rows == [["hannah", 20]]
    alphabets = next(c for c in page.components if isinstance(c, Table) and c.highlight)
    (own,) = alphabets.highlight
    assert alphabets.rows[own][:2] == ["characters of this file", str(report.alphabet_size)]
    (curve,) = (c for c in page.components if isinstance(c, Lines))
    assert curve.series[0][2][0] == pytest.approx(report.entropy_bits)
    (lengths,) = (c for c in page.components if isinstance(c, Histogram))
    assert sum(lengths.counts) == report.records
    assert "<b>" not in page.render().split("<main>")[1].split("<footer>")[0]
