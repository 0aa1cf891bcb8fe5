"""The guide tells the truth: its commands run, its tables list what exists, its links lead on.

Pages show commands as a user types them; here they run in order, in one folder a page, on tiny
files, and what trains is cut down to a few steps of a small model.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import importlib
import io
import re
import shlex
import shutil
import sys
import tomllib
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from regard import cli
from regard.bundled import NAMES
from regard.recipe import MODEL_KEYS, SECTIONS, build, read, toml_value
from regard.registry import FAMILIES, family

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = [*PAGES, ROOT / "CHANGELOG.md", *sorted((ROOT / "benchmarks").glob("*.md"))]
RECIPES = sorted((ROOT / "recipes").glob("*.toml"))
SMALL = ["train.steps=2", "train.batch_tokens=256", "train.eval_every=2", "model.size=1"]
SMALL_OPTIONS = [part for item in SMALL for part in ("--set", item)]
NOT_RUN = ("pip ", "make ", "python scripts/", "python benchmarks/", "git ")


def ids(path):
    return path.name


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Models this small are slower on several threads than on one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What every page starts from: the files it names, and the two runs of the first pages."""
    place = tmp_path_factory.mktemp("guide")
    some = NAMES.read_text().split()
    names, others = some[::200], some[77::600]
    (place / "names.txt").write_text("\n".join([*names, "maria", "jo"]) + "\n")
    (place / "others.txt").write_text("\n".join(others) + "\n")
    rows = [f'"{name}",{len(name)}' for name in names]
    (place / "people.csv").write_text("\n".join(["name,age", *rows]) + "\n")
    (place / "some.txt").write_text("aaron\nabrams\n")
    for name, part in (("good", names[::2]), ("bad", names[1::2])):
        (place / f"{name}.txt").write_text("\n".join(part) + "\n")
    entries = [f">p{i} class={'ab'[i % 2]}\n{name.upper()}\n" for i, name in enumerate(names)]
    (place / "proteins.fasta").write_text("".join(entries))
    asked = [f"how many {a} are there ?\tnumber\nwho is {a} ?\tperson" for a in names[:40]]
    for name in ("questions", "other"):
        (place / f"{name}.tsv").write_text("\n".join(["question\tkind", *asked]) + "\n")
    (place / "more.txt").write_text("how many are there ?\n\nwho is maria ?\n")
    (place / "rules.txt").write_text("# no name begins with x\n<S> x\n")
    for name, part in (("train", names), ("test", others), ("some", others[:3])):
        (place / f"{name}.en").write_text("\n".join(part) + "\n")
        (place / f"{name}.de").write_text("\n".join(word[::-1] for word in part) + "\n")
    random = np.random.default_rng(0)
    images, labels = random.integers(0, 256, (40, 8, 8), dtype=np.uint8), np.arange(40) % 4
    np.savez(place / "digits.npz", images=images, digit=labels)
    for part in ("pictures", "more-pictures"):
        for i, (image, label) in enumerate(zip(images, labels, strict=True)):
            path = place / part / f"class{label}" / f"{i}.pgm"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"P5 8 8 255\n" + image.tobytes())
    clouds = random.normal(size=(40, 12, 3)).astype(np.float32)
    np.savez(place / "shapes.npz", points=clouds, shape=np.arange(40) % 4)
    np.savez(place / "parts.npz", points=clouds, part=(clouds[..., 0] > 0).astype(int))
    frames = [
        f"3\nm{i} energy={i / 7:.3f}\nO 0 0 0\nH 0 0 1\nH {i / 40:.3f} 1 0\n" for i in range(40)
    ]
    (place / "molecules.xyz").write_text("".join(frames))
    (place / "energies.txt").write_text("".join(f"m{i} {i / 7:.3f}\n" for i in range(40)))
    told = [f"the {name} of number {i}" for i, name in enumerate(names[:40])]
    np.savez(place / "emoji.npz", images=images, captions=np.array(told))
    rows = [f"pictures/class{i % 4}/{i}.pgm\t{text}" for i, text in enumerate(told)]
    (place / "emoji.tsv").write_text("\n".join(["image\tcaption", *rows]) + "\n")
    (place / "list.txt").write_text("pictures/class1/1.pgm\n\npictures/class2/2.pgm\n")
    points = [f"{i / 4},{(i * i) % 7}" for i in range(20)]
    (place / "points.csv").write_text("\n".join(["x,y", *points]) + "\n")
    (place / "dictionary.tsv").write_text("house\tHaus\nmouse\tMaus\ntree\tBaum\n")
    lines = [" ".join(some[i : i + 7]) for i in range(0, 2000, 7)]
    (place / "play.txt").write_text("\n\n".join(lines) + "\n")
    who, what = (("king", "queen"), ("cat", "dog")), ("house", "river")
    tales = [
        f"the {a} and the {b} of the old {c} see a man or a woman"
        for a in who[0]
        for b in who[1]
        for c in what
    ]
    (place / "text.txt").write_text("\n".join(tales * 8) + "\n")
    pairs = [
        "king queen 9",
        "cat dog 8",
        "king cat 2",
        "house river 5",
        "dog queen 1",
        "man woman 8",
    ]
    (place / "wordsim353.tsv").write_text("\n".join(pair.replace(" ", "\t") for pair in pairs))
    (place / "questions-words.txt").write_text(": family\nman king woman queen\n")
    with contextlib.chdir(place):
        for model in ("transformer", "bigram"):
            run_line(f"regard train names.txt --model {model} --out runs/names-{model}")
    return place


def run_line(line: str) -> str:
    """Run one command of a page and return its standard output."""
    command = line.partition(" | ")[0]  # sort, head and the like only change how it looks
    command, _, given = command.partition(" < ")
    verb, *arguments = shlex.split(command)[1:]
    if verb == "train" and "--resume" not in arguments:
        arguments += SMALL_OPTIONS
    if verb == "compare":
        models = "ibm1" if "train.de" in arguments else "bigram,transformer"
        models = "majority" if {"--target", "digits.npz", "shapes.npz"} & set(arguments) else models
        arguments += [*SMALL_OPTIONS, "--models", models]
    if not cli.app.registered_commands:
        cli._fill()
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        if given:
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            file = io.BytesIO(Path(given.strip()).read_bytes())
            patch.setattr("sys.stdin", io.TextIOWrapper(file, encoding="utf-8"))
        try:
            cli.app([verb, *arguments])
        except SystemExit as end:
            assert end.code in (0, None), f"{line}: exit status {end.code}"
    return out.getvalue()


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def commands(page: Path) -> list[str]:
    found = [line for block in blocks(page, "console") for line in block.splitlines()]
    return [line.removeprefix("$ ") for line in found if line.startswith("$ ")]


def timed(page: Path) -> object:
    """Experiments take longer than a page should."""
    experiments = page.name in ("14-lab.md", "19-labs.md")
    return pytest.param(page, marks=pytest.mark.slow if experiments else ())


@pytest.mark.parametrize("page", [timed(p) for p in PAGES if commands(p)], ids=ids)
def test_every_command_of_a_page_runs(page, folder, tmp_path, monkeypatch):
    place = tmp_path / "here"
    shutil.copytree(folder, place)
    monkeypatch.chdir(place)
    shutil.copytree(ROOT / "recipes", place / "recipes")
    if page.name in ("README.md", "01-start.md"):  # these make their runs themselves
        shutil.rmtree(place / "runs")
    import regard.demos

    few = {"names": place / "names.txt", "models": ["bigram", "transformer"]}
    tiny = partial(regard.demos.demo, assignments=SMALL, **few)
    monkeypatch.setattr("regard.demos.demo", tiny)
    for line in commands(page):
        if line.startswith("regard "):
            assert run_line(line).strip(), f"{line}: printed nothing"
        else:
            assert line.startswith(NOT_RUN), f"{line}: neither run nor known to be left out"


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=ids)
def test_the_python_of_a_page_runs(page, folder, tmp_path, monkeypatch, capsys):
    shutil.copytree(folder, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    code = "\n".join(blocks(page, "python"))
    exec(compile(code, str(page), "exec"), {"__name__": "page"})
    assert capsys.readouterr().out.strip()


def table_rows(page: Path, first: str) -> list[list[str]]:
    """The cells of every table row whose first cell begins with `first`."""
    lines = [line for line in page.read_text().splitlines() if line.startswith(f"| {first}")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_the_table_of_keys_lists_every_key_of_a_recipe_with_its_default():
    page = ROOT / "docs" / "05-training.md"
    listed = {}
    for key, default, _ in table_rows(page, "`"):
        if not key.startswith("`model."):
            listed[key.strip("`")] = default.strip("`")
    expected = {"task": '"next"'}
    for section, cls in SECTIONS.items():
        for field in dataclasses.fields(cls):
            value = list(field.default) if isinstance(field.default, tuple) else field.default
            expected[f"{section}.{field.name}"] = toml_value(value)
    assert listed == expected


def test_the_table_of_model_keys_lists_every_field_of_every_family():
    page = ROOT / "docs" / "05-training.md"
    listed = {key.strip("`"): named for key, named, _ in table_rows(page, "`model.")}
    fields = {name: {f.name for f in dataclasses.fields(family(name).Config)} for name in FAMILIES}
    for key in MODEL_KEYS:
        assert listed.pop(f"model.{key}") == "all"
    assert set(listed) == {f"model.{key}" for keys in fields.values() for key in keys}
    for key, named in listed.items():
        having = {name for name, keys in fields.items() if key.removeprefix("model.") in keys}
        assert (set(FAMILIES) if named == "all" else set(named.split(", "))) == having, key


@pytest.mark.parametrize("path", RECIPES, ids=ids)
def test_a_recipe_builds_and_every_key_says_what_it_does(path):
    assert build(read(path)).model.name in ("transformer", "hyena")
    for line in path.read_text().splitlines():
        if re.match(r"\w+ = ", line):
            assert re.search(r"  # \S", line), f"{line}: no comment"
    named = tomllib.loads(path.read_text())["data"]["train"]
    for name in named if isinstance(named, list) else [named]:
        assert not Path(name).is_absolute()


def test_the_source_map_names_every_module():
    folder = str(ROOT / "scripts")
    sys.path.insert(0, folder)
    try:
        source_map = importlib.import_module("build_source_map")
    finally:
        sys.path.remove(folder)
    page = source_map.PAGE.read_text()
    assert source_map.build(page) == page, "run python scripts/build_source_map.py"
    listed = set(re.findall(r"^- `(\w+\.py)`", page, re.MULTILINE))
    present = {path.name for path in (ROOT / "src" / "regard").rglob("*.py")} - {"__init__.py"}
    assert listed == present


def test_every_class_in_the_table_of_topics_is_where_it_says():
    rows = [row for row in table_rows(ROOT / "docs" / "source-map.md", "") if len(row) == 3]
    rows = [row for row in rows if row[1].startswith("`") and row[1].endswith(".py`")]
    assert len(rows) > 20
    for topic, file, names in rows:
        source = ROOT / "src" / "regard" / file.strip("`")
        module = ".".join(("regard", *Path(file.strip("`")).with_suffix("").parts))
        for name in re.findall(r"`(\w+)`", names):
            assert hasattr(importlib.import_module(module), name), f"{topic}: {name} in {source}"


@pytest.mark.parametrize("page", TEXTS, ids=ids)
def test_links_lead_to_files_that_exist(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_verb_has_a_place_in_the_guide():
    said = " ".join(line for page in PAGES for line in commands(page))
    for verb in cli.VERBS:
        assert f"regard {verb}" in said


def test_the_readme_shows_python_that_parses():
    for page in PAGES:
        for block in blocks(page, "python"):
            assert ast.parse(block).body
