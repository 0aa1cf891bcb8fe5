"""Messages: one line that a terminal shows and does not obey, whatever a file holds."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

import regard.cli
from regard.errors import MAX_MESSAGE, MAX_QUOTE, one_line, printable, quoted
from regard.training.progress import Reporter

ANY = st.text(st.characters(exclude_categories=[]), max_size=600)  # surrogates too


def obeyed(text: str) -> list[str]:
    """Characters of the Unicode categories that terminals obey or do not show."""
    return [c for c in text if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")] + [
        c for c in text if unicodedata.bidirectional(c) in ("LRE", "RLE", "LRO", "RLO", "PDF")
        or unicodedata.bidirectional(c) in ("LRI", "RLI", "FSI", "PDI")
    ]  # fmt: skip


@given(ANY)
def test_any_text_becomes_one_short_line(text):
    line = one_line(text)
    assert not obeyed(line) and len(line) <= MAX_MESSAGE
    line.encode()


@given(ANY.filter(lambda text: text.isprintable() and len(text) <= MAX_QUOTE and "'" not in text))
def test_plain_words_stay_as_they_are(text):
    assert one_line(text) == printable(text) == text or any(
        unicodedata.category(c) == "Cf" for c in text
    )


def test_escapes_show_what_was_there():
    assert one_line("a\x1b[31mb\x07\u202ec\ud800d\ne") == r"a\x1b[31mb\x07\u202ec\ud800d e"


def test_what_is_quoted_is_cut_and_apostrophes_are_no_quotes():
    long = "x" * 300
    line = one_line(f"runs/a: expected a word, got '{long}'; choose another")
    assert line.startswith("runs/a: expected a word, got 'xxx") and "…" in line
    assert line.endswith("x'; choose another") and line.count("x") <= MAX_QUOTE + 2
    words = "the model's words " + "and more of them " * 8 + "than the user's"
    assert one_line(words) == words


def test_a_long_message_keeps_its_beginning_and_its_end():
    line = one_line("data.csv: " + "columns " * 200 + "--input COLUMN")
    assert len(line) == MAX_MESSAGE
    assert line.startswith("data.csv: columns") and line.endswith("--input COLUMN")


def test_any_value_is_quoted_briefly():
    for value in (10**5000, "x" * 10_000, ["y" * 99] * 99, {"z": 1e300}, None):
        assert len(quoted(value)) <= MAX_QUOTE


def test_errors_and_warnings_are_printed_so(capsys):
    assert regard.cli.fail("no file '\x1b[2Ja.txt'", 1) == 1
    Reporter().warn("damaged: \x9b31m")
    Reporter().say("label \u202eabc")
    printed = capsys.readouterr().err
    assert "\\x1b[2Ja.txt" in printed and "\\x9b31m" in printed and "\\u202eabc" in printed
    assert not obeyed(printed.replace("\n", ""))
