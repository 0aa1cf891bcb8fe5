"""The companion of the lectures: every heading has an entry or a reason, every class exists, every
command runs, and the headings are those of the decks, in their order.
"""

from __future__ import annotations

import ast
import pkgutil
import re
from pathlib import Path

import pytest
from tests.test_docs import one_thread, run_line, small  # noqa: F401  # fixtures, too

from regard import lectures
from regard.errors import UsageError
from regard.lectures import DECKS, LectureEntry, load_concepts, load_deck, load_entries, load_errata

ROOT = Path(__file__).parents[1]
DECK_TEXTS = ROOT.parent / "shared" / "seeds"
ENTRIES = [
    *load_concepts().values(),
    *(entry for name in (*DECKS, "plots", "systems") for entry in load_entries(name)),
]
WITH_COMMAND = {entry.command: entry for entry in ENTRIES if entry.command}
ERRATA = {
    line: LectureEntry(title=line, command=line)
    for e in load_errata().values()
    for line in e.commands
}
QUICK_LAB = ("bayes", "errata", "invariants", "lookup")  # others run in tests/lab


def timed(command: str) -> object:
    words = command.split()
    trains = words[1] == "lab" and words[2] not in QUICK_LAB
    repeats = {"--scaling", "--seeds"} & set(words) or words[1] in ("compare", "motif")
    return pytest.param(command, marks=pytest.mark.slow if trains or repeats else ())


@pytest.mark.parametrize("number", DECKS)
def test_every_heading_has_an_idea_a_command_a_figure_and_a_class_or_a_reason(number):
    deck = load_deck(number)
    assert len({entry.title for entry in deck.headings}) == len(deck.headings)
    for entry in deck.headings:
        given = [bool(part) for part in (entry.idea, entry.command, entry.shows, entry.code)]
        assert given == [not entry.reason] * 4, entry.title
        sentences = re.findall(
            r"[.?!:](?= |$)", entry.idea.replace("vs. ", "").replace("et al. ", "")
        )
        assert entry.reason or len(sentences) >= 2, f"{entry.title}: two sentences"
        assert not entry.erratum or entry.erratum in load_errata()


def test_all_concepts_figures_and_systems_are_there():
    letters = {"A": 10, "B": 12, "C": 4, "D": 7, "E": 15, "F": 10, "G": 4, "H": 6, "I": 9, "J": 4}
    numbers = [f"{x}{i + 1}" for x, n in (letters | {"K": 4}).items() for i in range(n)]
    assert list(load_concepts()) == numbers and len(numbers) == 85
    assert len(load_entries("plots")) == 26
    assert list(load_errata()) == [f"E{i + 1}" for i in range(17)]
    assert all(entry.left or entry.reason for entry in load_entries("systems"))


def test_every_class_exists_and_every_test_file():
    for entry in ENTRIES:
        assert entry.reason or pkgutil.resolve_name(entry.code) is not None
        assert entry.reason or (ROOT / "src" / entry.source).is_file()
    for number, concept in load_concepts().items():
        assert concept.reason or (ROOT / concept.tests).is_file(), number


def imported(path: Path) -> set[str]:
    """Return the modules that a file imports, and the names that it imports from them."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_the_test_of_a_concept_uses_its_class_or_its_experiment():
    """Four concepts named the test of something else."""
    for number, concept in load_concepts().items():
        if concept.reason:
            continue
        module, _, name = concept.code.rpartition(".")
        wanted = {module, concept.code}
        words = concept.command.split()
        if words[1] == "lab":
            wanted.add(f"regard.lab.{words[2]}")
        test = ROOT / concept.tests
        assert wanted & imported(test) or name in test.read_text(encoding="utf-8"), number


def test_every_page_of_the_gallery_exists():
    for entry in ENTRIES:
        assert not entry.live or (ROOT / "docs" / "gallery" / f"{entry.live}.html").is_file()


def test_every_erratum_with_a_number_is_a_claim_of_the_experiment():
    from regard.lab.errata import errata
    from regard.lab.experiment import Options

    claims = {claim.name.partition(":")[0] for claim in errata(Options(quick=True)).claims}
    assert claims == {number for number, one in load_errata().items() if one.measured}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data sets and runs that several commands need are made once."""
    return tmp_path_factory.mktemp("lectures")


@pytest.mark.parametrize("command", [timed(line) for line in {**WITH_COMMAND, **ERRATA}])
def test_a_command_runs_after_its_steps(command, folder, small, rows_here, monkeypatch):  # noqa: F811
    monkeypatch.chdir(folder)
    for step in (WITH_COMMAND | ERRATA)[command].steps:
        if not (step.makes and Path(step.makes).exists()):
            assert run_line(step.command).strip(), f"{step.command}: printed nothing"
        assert not step.makes or Path(step.makes).exists(), f"{step.command}: no {step.makes}"


def words_of(text: str) -> str:
    """Return the words of a deck's text, without tags and commands of LaTeX."""
    return lectures.simplify(re.sub(r"\\[a-zA-Z]+|</?(?:i|b|u|sub|sup|br)>", " ", text))


@pytest.mark.skipif(not DECK_TEXTS.is_dir(), reason="the texts of the decks are not here")
@pytest.mark.parametrize("number", DECKS)
def test_headings_are_in_the_deck_in_this_order(number):
    (path,) = DECK_TEXTS.glob(f"{number}_*.txt")
    text, position = words_of(path.read_text(encoding="utf-8")), 0
    for entry in load_deck(number).headings:
        position = text.find(words_of(entry.title), position)
        assert position >= 0, f"{entry.title!r} is not in the deck after the heading before it"


def test_a_heading_is_found_by_its_title_by_words_of_it_and_in_any_case():
    deck = load_deck("002")
    assert deck.find("positional encoding").title == "Positional Encoding"
    assert deck.find("causal MASK").title == "causal masking"
    assert deck.find("top p").title == "top P-sampling"


def test_words_that_no_title_has_are_looked_for_in_the_ideas():
    found = lectures.search("svm", load_deck("001").headings)
    assert [entry.title for entry in found] == ["Connections to Support Vector Machines"]
    assert "beam" in load_deck("002").find("extended in parallel").idea.lower()
    assert not lectures.search("", load_deck("001").headings)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("masking", "3 headings in lecture 002 have 'masking'; choose one of"),
        ("beem search", "no heading in lecture 002 has 'beem search'; did you mean 'beam search'?"),
        ("zzz", "without one all are listed"),
    ],
)
def test_a_heading_that_is_not_found_has_a_hint(text, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        load_deck("002").find(text)


def test_an_entry_with_a_command_of_its_own_does_not_take_the_steps_of_its_concept():
    entry = load_deck("000").find("The cat, who belongs to my mother, is on the table")
    assert entry.commands == ["regard lab slides --quick --out lab"]
    assert load_deck("000").find("vision transformers").commands[0] == "regard example digits"
