"""Markup of parallel text: what is removed from both files, and what is text."""

import pytest

from regard.data.markup import Markup
from regard.data.text_files import Pairs

ENGLISH = """<CHAPTER ID=1>
Resumption of the session
<SPEAKER ID=1 NAME="President">
I declare resumed the session.
<P>
"""
GERMAN = """<CHAPTER ID=1>
Wiederaufnahme der Sitzung
<SPEAKER ID=1 NAME="Die Präsidentin">
Ich erkläre die Sitzung für wieder aufgenommen.
<P>
"""


@pytest.fixture
def pairs(tmp_path):
    def make(source, target, names=("a.en", "a.de")):
        for name, text in zip(names, (source, target), strict=True):
            (tmp_path / name).write_text(text)
        return Pairs([tmp_path / name for name in names])

    return make


def read(pairs):
    chunks = list(pairs.records())
    return [pair for c in chunks for pair in zip(c.sources, c.texts, strict=True)]


def test_lines_of_tags_in_europarl_files_are_left_out_and_counted(pairs):
    files = pairs(ENGLISH, GERMAN)
    assert read(files) == [
        ("Resumption of the session", "Wiederaufnahme der Sitzung"),
        (
            "I declare resumed the session.",
            "Ich erkläre die Sitzung für wieder aufgenommen.",
        ),
    ]
    assert files.blank == 0 and files.skipped == 0
    (note,) = files.remarks
    assert note == "3 lines of tags in both files, such as <CHAPTER ID=1>, are left out"


def test_segments_of_sgml_test_sets_lose_their_tags_and_entities(pairs):
    source = '<srcset setid="t">\n<doc docid="1">\n<seg id="1">A &amp; B</seg>\n</doc>\n</srcset>\n'
    target = '<refset setid="t">\n<doc docid="1">\n<seg id="1"> A und B </seg>\n</doc>\n</refset>\n'
    files = pairs(source, target, ("t.en.sgm", "t.de.sgm"))
    assert read(files) == [("A & B", "A und B")]
    assert "4 lines of tags" in files.remarks[0] and "around 1 pairs" in files.remarks[0]


@pytest.mark.parametrize(
    "pair",
    [
        ("a < b", "a > b"),
        ("<P>", "ein Text"),
        ("x <b>y</b> z", "u <b>v</b> w"),
        ("<3", "<3"),
        ("", ""),
    ],
)
def test_other_signs_are_text(pair):
    markup = Markup()
    assert markup.strip(*pair) == pair and markup.note == ""


def test_a_file_without_markup_has_no_note(pairs):
    files = pairs("one\ntwo\n", "eins\nzwei\n")
    assert len(read(files)) == 2 and not files.remarks
