import json
import math
import random
from collections import Counter
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.cli.data import command
from regard.console import print_table
from regard.data import formats, report
from regard.data.report import inspect, render, suggest
from regard.data.splits import assign, cut_points
from regard.data.text_files import Pairs, TextFiles
from regard.errors import UserError

SHARED = Path(__file__).parents[2].parent / "shared" / "data"


@pytest.fixture
def source(tmp_path):
    def source(text, format="lines", name="a.txt"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return TextFiles([path], format=format)

    return source


def shown(found):
    out = StringIO()
    with redirect_stdout(out):
        render(found, print_table)
    return out.getvalue()


LINES = st.lists(st.text("abä😀 z", min_size=1, max_size=9), min_size=1, max_size=40)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(LINES)
def test_figures_are_what_counting_by_hand_says(source, lines):
    found = inspect(source("\n".join(lines)))
    counts = Counter("".join(lines))
    assert found.alphabet_size == len(counts)
    assert dict(found.common) == dict(counts)
    counts["end"] = len(lines)
    total = counts.total()
    assert (found.records, found.symbols) == (len(lines), total)
    bits = -sum(n / total * math.log2(n / total) for n in counts.values())
    assert found.entropy_bits == pytest.approx(bits)
    lengths = sorted(map(len, lines))
    middle = (lengths[(len(lines) - 1) // 2] + lengths[len(lines) // 2]) / 2
    assert found.lengths.median == middle
    assert (found.lengths.min, found.lengths.max) == (lengths[0], lengths[-1])
    assert found.lengths.mean == pytest.approx(sum(lengths) / len(lines))
    assert found.lengths.p95 == lengths[math.ceil(0.95 * len(lines)) - 1]
    assert found.near_empty == sum(length <= 1 for length in lengths)
    for low, high, n in found.lengths.histogram:
        assert n == sum(low <= length <= high for length in lengths)
    assert sum(n for _, _, n in found.lengths.histogram) == len(lines)
    assert found.duplicates == len(lines) - len(set(lines))
    copies = {text: n for text, n in Counter(lines).items() if n > 1}
    assert all(copies[text] == n for text, n in found.repeated)
    assert sum(n for _, n in found.repeated) == sum(sorted(copies.values())[-10:])


def test_lengths_over_several_orders_get_bars_of_doubling_width(source):
    lengths = [1, 1, 2, 3, 4, 900, 5000]
    histogram = inspect(source("\n".join("x" * n for n in lengths))).lengths.histogram
    assert [bar for bar in histogram if bar[2]] == [
        (1, 1, 2),
        (2, 3, 2),
        (4, 7, 1),
        (512, 1023, 1),
        (4096, 5000, 1),
    ]


def test_the_document_has_the_promised_keys_and_only_finite_numbers(source):
    document = inspect(source("aa\naa\n")).to_json()
    promised = {"records", "symbols", "alphabet_size", "entropy_bits", "duplicates", "suggestion"}
    assert promised <= document.keys()
    assert document == json.loads(json.dumps(document, allow_nan=False))
    assert document["entropy_bits"] == pytest.approx(
        -(2 / 3 * math.log2(2 / 3) + 1 / 3 * math.log2(1 / 3))
    )
    assert document["repeated"] == [{"text": "aa", "count": 2}]
    assert document["leaks"] == {"valid": 0, "test": 0}


def test_planted_leaks_between_files_are_counted_exactly(source):
    train = source("".join(f"train {i}\n" for i in range(300)), name="train.txt")
    valid = source("train 7\ntrain 7\nnew\ntrain 299\n", name="valid.txt")
    test = source("newer\n", name="test.txt")
    found = inspect(train, valid=valid, test=test)
    assert found.to_json()["leaks"] == {"valid": 3, "test": 0}
    assert found.leaks["valid"].examples == ("train 7", "train 299")
    assert "3 of 4 (75.0%)" in shown(found)


def test_a_given_valid_file_is_compared_with_what_is_left_to_train_on(source):
    lines = [f"train {i}" for i in range(300)]
    valid = source("\n".join(lines), name="valid.txt")
    found = inspect(source("\n".join(lines)), valid=valid, valid_fraction=0.5, test_fraction=0.2)
    sides = assign(lines, 0.0, 0.2).tolist()
    assert found.leaks["valid"].records == sides.count(0)
    assert (found.leaks["test"].records, found.leaks["test"].total) == (0, sides.count(2))


def test_damaged_and_blank_records_are_reported_though_later_passes_stop_early(source):
    copies = "anna\nanna\n\n"
    found = inspect(source(copies.encode() + b"\xff\xff\nbob is fine\n" * 3))
    assert (found.records, found.blank, found.skipped, len(found.problems)) == (5, 1, 3, 3)
    assert "1 blank and 3 damaged left out" in shown(found)


def sentence(rng, words=9):
    return " ".join(rng.choices(["river", "stone", "winter", "under", "light", "again"], k=words))


@pytest.mark.parametrize("block", [11, 1 << 20])
def test_repeated_and_leaked_lines_of_running_text_are_counted_exactly(source, monkeypatch, block):
    rng = random.Random(5)
    lines = [f"{i} {sentence(rng)}" for i in range(200)]
    short = "* * *"
    lines[50] = lines[190] = lines[3]  # one copy within training, one leak into test
    lines[170] = lines[4]  # a leak into valid
    lines[191] = lines[171]  # from valid into test: training has not seen it
    text = f"\n{short}\n".join(lines)
    monkeypatch.setattr(formats, "BLOCK", block)
    found = inspect(source(text, format="text"), valid_fraction=0.2, test_fraction=0.1)
    a, b = cut_points(len(text), 0.2, 0.1)
    assert text.index(lines[3], text.index(lines[3]) + 1) < a < text.rindex(lines[4])
    assert text.rindex(lines[4]) < b < text.rindex(lines[3])
    assert (found.records, found.symbols, found.duplicates) == (1, len(text), 4)
    assert found.repeated[0] == (lines[3], 3)
    assert found.to_json()["leaks"] == {"valid": 1, "test": 1}
    assert found.leaks["valid"].examples == (lines[4],)


def test_documents_are_the_records_of_running_text_and_have_no_ends(tmp_path):
    for name, text in (("1.txt", "ab\n"), ("2.txt", "c" * 50), ("3.txt", "c" * 50 + "\n")):
        (tmp_path / name).write_text(text)
    found = inspect(TextFiles([tmp_path], format="text"), valid_fraction=0, test_fraction=0)
    assert (found.records, found.symbols, found.alphabet_size) == (3, 104, 4)
    assert (found.duplicates, found.leaks) == (1, {})  # a file's end ends its last line
    assert "documents" in shown(found)


def test_an_endless_line_of_running_text_is_taken_in_pieces(source, monkeypatch):
    monkeypatch.setattr(formats, "BLOCK", 50)
    monkeypatch.setattr(report, "PIECE", 99)
    found = inspect(source("x" * 1000, format="text"), valid_fraction=0.1, test_fraction=0.1)
    assert (found.symbols, found.entropy_bits) == (1000, 0.0)
    assert found.duplicates == 1000 // 100 - 1


def test_nothing_to_inspect_is_a_user_error(source):
    for format in ("lines", "text"):
        with pytest.raises(UserError, match="nothing to read"):
            inspect(source(b"\xef\xbb\xbf", format=format))


@pytest.mark.parametrize(
    ("symbols", "alphabet", "spaces", "tokens", "model"),
    [
        (1_000, 26, 0.0, "characters", "bigram"),
        (5_000, 26, 0.2, "characters", "lstm"),
        (228_146, 26, 0.0, "characters", "transformer"),
        (50_000_000, 90, 0.18, "bpe", "transformer"),
        (50_000_000, 4, 0.0, "characters", "transformer"),
        (2_000_000, 4_000, 0.0, "bpe", "transformer"),
        (30_000, 2_500, 0.0, "bytes", "transformer"),
    ],
)
def test_the_suggestion_follows_size_and_alphabet(symbols, alphabet, spaces, tokens, model):
    found = suggest(symbols, alphabet, spaces)
    assert (found.task, found.tokens, found.model) == ("next", tokens, model)
    assert found.why


def test_the_terminal_is_shown_control_characters_and_markup_but_obeys_neither(source):
    text = shown(inspect(source("[red]\x1b[31m\n" * 3)))
    assert "\x1b" not in text
    assert r"3 × [red]\x1b[31m" in text


@pytest.mark.skipif(not SHARED.exists(), reason="the shared data folder is not here")
def test_names_are_counted_as_is_known():
    found = inspect(TextFiles([SHARED / "names" / "names.txt"]))
    assert (found.records, found.symbols, found.alphabet_size) == (32_033, 228_146, 26)
    assert found.duplicates == 32_033 - 29_494
    assert (found.suggestion.tokens, found.suggestion.model) == ("characters", "transformer")


def test_pairs_are_counted_on_both_sides_and_compared_by_their_sources(tmp_path, capsys):
    files = {
        "t.en": "a b\nc\na b\n\nxx\n",
        "t.de": "A\nBB\nC\n\n\n",
        "v.en": "c\nq\n",
        "v.de": "other\nBB\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    train, valid = (Pairs([tmp_path / f"{x}.en", tmp_path / f"{x}.de"]) for x in "tv")
    found = inspect(train, valid=valid, test_fraction=0.0)
    assert (found.records, found.blank, found.skipped) == (3, 1, 1)
    assert found.symbols == len("a bca b") + len("ABBC") + 2 * 3  # and an end on either side
    assert dict(found.common)["B"] == dict(found.common)["a"] == 2
    assert (found.lengths.max, found.source_lengths.max) == (2, 3)
    assert (found.duplicates, found.repeated) == (1, (("a b", 2),))
    assert found.leaks["valid"].records == 1  # the source c, whatever its target
    page = " ".join(shown(found).split())
    assert "pairs 3, 1 blank and 1 damaged left out" in page
    assert "same sources 1" in page and "of sources median 3" in page
    document = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert sum(bar["records"] for bar in document["source_lengths"]["histogram"]) == 3

    command(SimpleNamespace(args=[]), [tmp_path / "t.en", tmp_path / "t.de"], json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["records"] == 3
    assert told["suggestion"]["task"] == "target"
    assert told["suggestion"]["tokens"] == "characters"


def test_entropies_by_context_and_the_alphabets_are_printed_and_in_the_document(source):
    found = inspect(source("abab\n" * 50))
    assert found.entropies[0].bits == pytest.approx(found.entropy_bits)
    assert found.words == 0 and not found.sampled
    document = found.to_json()
    assert [x["order"] for x in document["entropies"]] == [0, 1, 2, 3]
    page = " ".join(shown(found).split())
    assert "bits without context, " in page and "nucleotides of DNA or RNA 4 2.0" in page
    assert page.index("characters of this file 2 1.0") < page.index("nucleotides")
    assert inspect(source("the cat\nthe dog\n")).words == 3
