"""The docs are true: commands and Python run in an empty folder, tables list what exists, links
lead somewhere.

A page is run from top to bottom in a folder of its own, with nothing in it but what the page itself
writes. Only training is shortened, to a few steps of a small model, and long example files are.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from regard import cli
from regard.evaluation import METRICS
from regard.recipe import build, read

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
INDEX = DOCS / "index.md"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
TEXTS = [*PAGES, ROOT / "CHANGELOG.md", *sorted((ROOT / "benchmarks").glob("*.md"))]
RECIPES = sorted((ROOT / "recipes").glob("*.toml"))
SMALL = ["train.steps=2", "train.batch_tokens=256", "train.eval_every=2", "model.size=1"]
SMALL_OPTIONS = [part for item in SMALL for part in ("--set", item)]
MOST_RECORDS = 1000  # of an example
PAGE = "page"  # the name of the module that the Python of a page is
NOT_RUN = ("pip ", "make ", "git ", "regard studio")  # the last serves until it is stopped
SLOW = {  # pages of one modality, whose commands have tests of their own, and long ones
    "lab.md",
    "captions.md",
    "dna-and-proteins.md",
    "errata.md",
    "image-text-pairs.md",
    "images.md",
    "json.md",
    "molecules.md",
    "motifs.md",
    "point-clouds.md",
    "pretraining.md",
    "read-a-look-page.md",
    "summaries-and-answers.md",
    "time-series.md",
    "translation.md",
}
GENERATED = re.compile(r"<!-- generated: .*?<!-- end -->", re.DOTALL)


def ids(path):
    return path.relative_to(ROOT).as_posix()


class Block(NamedTuple):
    """A fenced block of a page. Of the language `py` it is a fragment, which only parses."""

    language: str
    text: str

    @property
    def commands(self):
        lines = self.text.splitlines() if self.language == "console" else []
        return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


def blocks(page: Path) -> list[Block]:
    fences = re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    return [Block(*fence) for fence in fences]


def runs(page: Path) -> bool:
    return any(block.commands or block.language == "python" for block in blocks(page))


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Models this small are slower on several threads than on one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def write_some(path: Path, lines: Iterable[str]) -> Path:
    """Write some of the records of an example, from all of it."""
    size = 2 if path.suffix in (".fa", ".fasta") else 1  # lines of a record
    kept = list(lines)
    every = (-(-len(kept) // (size * MOST_RECORDS)) | 1) * size  # odd: classes may alternate
    chosen = [line for i, line in enumerate(kept) if i % every < size]
    path.write_text("".join(f"{line}\n" for line in chosen), encoding="utf-8")
    return path


@pytest.fixture
def small(monkeypatch):
    """Comparisons have two rows, the demonstration two models that train briefly, and example files
    so many records.
    """
    import regard.api
    import regard.demos

    monkeypatch.setattr("regard.bundled.examples._lines", write_some)

    rows = regard.api.default_models
    monkeypatch.setattr("regard.api.default_models", lambda *args: rows(*args)[:2])
    tiny = partial(regard.demos.demo, assignments=SMALL, models=["bigram", "transformer"])
    monkeypatch.setattr("regard.demos.demo", tiny)


def shortened(verb: str, arguments: list[str]) -> list[str]:
    """Add the settings of a small model to a command that trains; the run keeps its name."""
    if verb == "compare":
        return [*arguments, *SMALL_OPTIONS]
    if verb != "train" or "--resume" in arguments:
        return arguments
    named = {"--model", "--out"} & set(arguments)
    out = [] if named else ["--out", f"runs/{Path(arguments[0]).name.split('.')[0]}"]
    return [*arguments, *out, *SMALL_OPTIONS]


def run_line(line: str) -> str:
    """Run one command of a page and return its standard output."""
    command, _, rest = line.partition(" | ")
    standard_input = None
    if command.startswith("echo "):
        standard_input, command = shlex.split(command)[1] + "\n", rest
    command, _, file = command.partition(" < ")
    if file:
        standard_input = Path(file).read_text()
    verb, *arguments = shlex.split(command)[1:]
    if not cli.app.registered_commands:
        cli._fill()
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        if standard_input is not None:
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            stream = io.TextIOWrapper(io.BytesIO(standard_input.encode()), encoding="utf-8")
            patch.setattr("sys.stdin", stream)
        try:
            cli.app([verb, *shortened(verb, arguments)])
        except SystemExit as end:
            assert end.code in (0, None), f"{line}: exit status {end.code}"
    return out.getvalue()


def check_keys(shown: object, printed: object, where: str) -> None:
    """Assert that every key of a document that a page shows is in the one that is printed."""
    if isinstance(shown, dict):
        for key, value in shown.items():
            assert isinstance(printed, dict) and key in printed, f"{where}.{key}"
            check_keys(value, printed[key], f"{where}.{key}")
    elif isinstance(shown, list) and shown:
        assert isinstance(printed, list) and printed, where
        check_keys(shown[0], printed[0], f"{where}[0]")


def timed(page: Path) -> object:
    return pytest.param(page, marks=pytest.mark.slow if page.name in SLOW else ())


@pytest.fixture
def metrics():
    """Metrics that a page registers are gone after it."""
    yield
    for registered in METRICS.values():
        for name in [name for name, one in registered.items() if one.function.__module__ == PAGE]:
            del registered[name]


@pytest.mark.parametrize("page", [timed(page) for page in PAGES if runs(page)], ids=ids)
def test_a_page_runs_in_an_empty_folder(page, small, rows_here, metrics, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, printed = {"__name__": PAGE}, ""
    for block in blocks(page):
        for line in block.commands:
            if line.startswith(("regard ", "echo ")) and not line.startswith(NOT_RUN):
                printed = run_line(line)
                assert printed.strip(), f"{line}: printed nothing"
            else:
                assert line.startswith(NOT_RUN), f"{line}: neither run nor in NOT_RUN"
        if block.language == "json":
            check_keys(json.loads(block.text), json.loads(printed), page.name)
        if block.language == "python":
            exec(compile(block.text, str(page), "exec"), names)


def test_fragments_of_python_parse():
    fragments = [block.text for page in PAGES for block in blocks(page) if block.language == "py"]
    assert len(fragments) > 3 and all(ast.parse(text).body for text in fragments)


def test_the_pages_show_every_command():
    lines = " ".join(line for page in PAGES for block in blocks(page) for line in block.commands)
    for verb in cli.VERBS:
        assert f"regard {verb}" in lines


def test_generated_parts_are_up_to_date():
    """A fresh process: tests of this one register models and metrics of their own."""
    command = [sys.executable, str(ROOT / "scripts" / "build_reference.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_generated_row_is_described():
    pages = [page for page in DOCS.rglob("*.md") if page.name != "commands.md"]
    parts = [part for page in pages for part in GENERATED.findall(page.read_text())]
    assert len(parts) > 10
    empty = [line for part in parts for line in part.splitlines() if line.endswith("| |")]
    assert not empty, "write the last cell of these rows"


def table_rows(page: Path, first: str) -> list[list[str]]:
    """Return the cells of every table row whose first cell begins with `first`."""
    lines = [line for line in page.read_text().splitlines() if line.startswith(f"| {first}")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_every_class_in_the_table_of_topics_is_where_it_says():
    rows = [row for row in table_rows(DOCS / "reference" / "source-map.md", "") if len(row) == 3]
    rows = [row for row in rows if row[1].startswith("`") and row[1].endswith(".py`")]
    assert len(rows) > 20
    for topic, file, names in rows:
        source = ROOT / "src" / "regard" / file.strip("`")
        module = ".".join(("regard", *Path(file.strip("`")).with_suffix("").parts))
        for name in re.findall(r"`(\w+)`", names):
            assert hasattr(importlib.import_module(module), name), f"{topic}: {name} in {source}"


@pytest.mark.parametrize("path", RECIPES, ids=ids)
def test_a_recipe_builds_and_every_key_has_a_comment(path):
    assert build(read(path)).model.name in ("transformer", "hyena")
    for line in path.read_text().splitlines():
        if re.match(r"\w+ = ", line):
            assert re.search(r"  # \S", line), f"{line}: no comment"
    files = tomllib.loads(path.read_text())["data"]["train"]
    for name in files if isinstance(files, list) else [files]:
        assert not Path(name).is_absolute()


def links(page: Path) -> list[str]:
    """Return the targets of the links of a page that are not in code and lead to files."""
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", TEXTS, ids=ids)
def test_links_lead_to_files_and_headings_that_exist(page):
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(target), f"{page.name}: {link}"


def test_the_index_leads_to_every_page():
    listed = {(INDEX.parent / link).resolve() for link in links(INDEX)}
    assert listed == {page for page in DOCS.rglob("*.md") if page != INDEX}


def test_the_readme_is_short_and_its_pictures_are_small():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 140
    pictures = [ROOT / link for link in links(ROOT / "README.md") if link.endswith(".png")]
    assert len(pictures) >= 4
    assert all(path.stat().st_size <= 150_000 for path in pictures)


def test_the_page_about_plugins_shows_the_plugins_that_are_tested():
    package = ROOT / "tests" / "plugins" / "package"
    page = (DOCS / "how-to" / "plugins.md").read_text()
    (entry_points,) = package.glob("*.dist-info/entry_points.txt")
    for line in entry_points.read_text().splitlines():
        group, (name, _, target) = line.strip("[]"), line.partition(" = ")
        shown = (
            f'[project.entry-points."{group}"]' if line.startswith("[") else f'{name} = "{target}"'
        )
        assert not line or shown in page, shown
