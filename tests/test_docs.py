"""The guide is true: its commands run, its tables list what exists, its links lead to files.

Pages show commands as a user types them; here they run in order, in one folder per page, on tiny
files, and training is shortened to a few steps of a small model.
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
from regard.recipe import MODEL_KEYS, DataRecipe, TrainRecipe, build, read, toml_value
from regard.registry import AUGMENTATIONS, MODALITIES, MODELS, TASKS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXPLANATIONS = sorted((ROOT / "docs" / "explanation").glob("*.md"))
TEXTS = [*PAGES, *EXPLANATIONS, ROOT / "CHANGELOG.md", *sorted((ROOT / "benchmarks").glob("*.md"))]
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
def folder(tmp_path_factory, rows_here):
    """A folder with the files that pages name, and the two runs of the first pages."""
    path = tmp_path_factory.mktemp("guide")
    write_texts(path)
    write_labelled(path)
    write_images(path)
    write_point_clouds(path)
    write_series(path)
    with contextlib.chdir(path):
        for model in ("transformer", "bigram"):
            run_line(f"regard train names.txt --model {model} --out runs/names-{model}")
    return path


def write_lines(path, lines):
    path.write_text("\n".join(lines) + "\n")


def write_texts(path):
    all_names = NAMES.read_text().split()
    names, others = all_names[::200], all_names[77::600]
    write_lines(path / "names.txt", [*names, "maria", "jo"])
    write_lines(path / "others.txt", others)
    write_lines(path / "some.txt", ["aaron", "abrams"])
    write_lines(path / "rules.txt", ["# no name starts with x", "<S> x"])
    for name, part in (("train", names), ("test", others), ("some", others[:3])):
        write_lines(path / f"{name}.en", part)
        write_lines(path / f"{name}.de", [word[::-1] for word in part])
    write_lines(path / "dictionary.tsv", ["house\tHaus", "mouse\tMaus", "tree\tBaum"])
    paragraphs = [" ".join(all_names[i : i + 7]) for i in range(0, 2000, 7)]
    (path / "play.txt").write_text("\n\n".join(paragraphs) + "\n")
    sentences = [
        f"the {a} and the {b} of the old {c} see a man or a woman"
        for a in ("king", "queen")
        for b in ("cat", "dog")
        for c in ("house", "river")
    ]
    write_lines(path / "text.txt", sentences * 8)
    pairs = ["king queen 9", "cat dog 8", "king cat 2", "house river 5", "dog queen 1"]
    write_lines(path / "wordsim353.tsv", [x.replace(" ", "\t") for x in [*pairs, "man woman 8"]])
    write_lines(path / "questions-words.txt", [": family", "man king woman queen"])


def write_labelled(path):
    names = NAMES.read_text().split()[::200]
    write_lines(path / "people.csv", ["name,age", *(f'"{name}",{len(name)}' for name in names)])
    for name, part in (("good", names[::2]), ("bad", names[1::2])):
        write_lines(path / f"{name}.txt", part)
    entries = [f">p{i} class={'ab'[i % 2]}\n{name.upper()}\n" for i, name in enumerate(names)]
    (path / "proteins.fasta").write_text("".join(entries))
    rows = [f"how many {a} are there ?\tnumber\nwho is {a} ?\tperson" for a in names[:40]]
    for name in ("questions", "other"):
        write_lines(path / f"{name}.tsv", ["question\tkind", *rows])
    write_lines(path / "more.txt", ["how many are there ?", "", "who is maria ?"])
    write_lines(path / "points.csv", ["x,y", *(f"{i / 4},{(i * i) % 7}" for i in range(20))])


def write_images(path):
    random = np.random.default_rng(0)
    images, labels = random.integers(0, 256, (40, 8, 8), dtype=np.uint8), np.arange(40) % 4
    np.savez(path / "digits.npz", images=images, digit=labels)
    for part in ("images", "more-images"):
        for i, (image, label) in enumerate(zip(images, labels, strict=True)):
            file = path / part / f"class{label}" / f"{i}.pgm"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"P5 8 8 255\n" + image.tobytes())
    names = NAMES.read_text().split()[::200]
    captions = [f"the {name} of number {i}" for i, name in enumerate(names[:40])]
    np.savez(path / "emoji.npz", images=images, captions=np.array(captions))
    rows = [f"images/class{i % 4}/{i}.pgm\t{text}" for i, text in enumerate(captions)]
    write_lines(path / "emoji.tsv", ["image\tcaption", *rows])
    write_lines(path / "list.txt", ["images/class1/1.pgm", "", "images/class2/2.pgm"])


def write_point_clouds(path):
    points = np.random.default_rng(0).normal(size=(40, 12, 3)).astype(np.float32)
    np.savez(path / "shapes.npz", points=points, shape=np.arange(40) % 4)
    np.savez(path / "parts.npz", points=points, part=(points[..., 0] > 0).astype(int))
    molecules = [
        f"3\nm{i} energy={i / 7:.3f}\nO 0 0 0\nH 0 0 1\nH {i / 40:.3f} 1 0\n" for i in range(40)
    ]
    (path / "molecules.xyz").write_text("".join(molecules))
    write_lines(path / "energies.txt", [f"m{i} {i / 7:.3f}" for i in range(40)])


def write_series(path):
    random = np.random.default_rng(0)
    times = np.datetime64("2024-01-01T00", "h") + np.arange(400)
    waves = 10 + np.sin(np.arange(400) * np.pi / 12) + 0.1 * random.normal(size=400)
    rows = [f"{t},{x:.3f},{20 - x:.3f}" for t, x in zip(times, waves, strict=True)]
    write_lines(path / "load.csv", ["time,load,temperature", *rows])
    steps = [(n, t, np.sin(t * (1 + n % 2) / 2 + n)) for n in range(40) for t in range(12)]
    rows = [f"r{n},{t},{x:.3f},{'slow' if n % 2 else 'fast'}" for n, t, x in steps]
    write_lines(path / "signals.csv", ["recording,t,volt,kind", *rows])


def run_line(line: str) -> str:
    """Run one command of a page and return its standard output."""
    command = line.partition(" | ")[0]  # sort, head and the like only change the output
    command, _, standard_input = command.partition(" < ")
    verb, *arguments = shlex.split(command)[1:]
    if verb == "train" and "--resume" not in arguments:
        arguments += SMALL_OPTIONS
    if verb == "compare":
        models = "ibm1" if "train.de" in arguments else "bigram,transformer"
        models = "majority" if {"--target", "digits.npz", "shapes.npz"} & set(arguments) else models
        models = "ridge" if "load.csv" in arguments else models
        arguments += [*SMALL_OPTIONS, "--models", models]
    if not cli.app.registered_commands:
        cli._fill()
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        if standard_input:
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            file = io.BytesIO(Path(standard_input.strip()).read_bytes())
            patch.setattr("sys.stdin", io.TextIOWrapper(file, encoding="utf-8"))
        try:
            cli.app([verb, *arguments])
        except SystemExit as end:
            assert end.code in (0, None), f"{line}: exit status {end.code}"
    return out.getvalue()


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def commands(page: Path) -> list[str]:
    lines = [line for block in blocks(page, "console") for line in block.splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


def timed(page: Path) -> object:
    """Mark pages with experiments as slow."""
    experiments = page.name in ("14-lab.md", "19-labs.md")
    return pytest.param(page, marks=pytest.mark.slow if experiments else ())


@pytest.mark.parametrize("page", [timed(p) for p in PAGES if commands(p)], ids=ids)
def test_every_command_of_a_page_runs(page, folder, tmp_path, monkeypatch):
    path = tmp_path / "here"
    shutil.copytree(folder, path)
    monkeypatch.chdir(path)
    shutil.copytree(ROOT / "recipes", path / "recipes")
    if page.name in ("README.md", "01-start.md"):  # these make their runs themselves
        shutil.rmtree(path / "runs")
    import regard.demos

    few = {"names": path / "names.txt", "models": ["bigram", "transformer"]}
    tiny = partial(regard.demos.demo, assignments=SMALL, **few)
    monkeypatch.setattr("regard.demos.demo", tiny)
    for line in commands(page):
        if line.startswith("regard "):
            assert run_line(line).strip(), f"{line}: printed nothing"
        else:
            assert line.startswith(NOT_RUN), f"{line}: neither run nor in NOT_RUN"


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=ids)
def test_the_python_of_a_page_runs(page, folder, tmp_path, monkeypatch, capsys):
    shutil.copytree(folder, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    code = "\n".join(blocks(page, "python"))
    exec(compile(code, str(page), "exec"), {"__name__": "page"})
    assert capsys.readouterr().out.strip()


def table_rows(page: Path, first: str) -> list[list[str]]:
    """Return the cells of every table row whose first cell begins with `first`."""
    lines = [line for line in page.read_text().splitlines() if line.startswith(f"| {first}")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def default_of(field: dataclasses.Field[object]) -> str:
    """Return the default of a setting as TOML writes it."""
    value = list(field.default) if isinstance(field.default, tuple) else field.default
    return toml_value(value)


def documented(*tables: str) -> dict[str, list[str]]:
    """Return the cells after each key of some recipe tables, as docs/05-training.md has them."""
    page = ROOT / "docs" / "05-training.md"
    rows = [row for table in tables for row in table_rows(page, f"`{table}.")]
    assert len({row[0] for row in rows}) == len(rows), "a key is listed twice"
    return {row[0].strip("`"): [cell.strip("`") for cell in row[1:]] for row in rows}


def test_the_guide_lists_every_key_of_data_and_training_with_its_default():
    expected = {
        f"{table}.{field.name}": default_of(field)
        for table, cls in (("data", DataRecipe), ("train", TrainRecipe))
        for field in dataclasses.fields(cls)
    }
    listed = {key: default for key, (default, _) in documented("data", "train").items()}
    assert listed == expected


@pytest.mark.parametrize(
    "table, registry", [("task", TASKS), ("input", MODALITIES), ("augment", AUGMENTATIONS)]
)
def test_the_guide_lists_every_setting_of_tasks_modalities_and_augmentations(table, registry):
    owners, defaults = {}, {}
    for name in registry:
        for field in dataclasses.fields(registry[name].Config):
            if field.name != "name":
                owners.setdefault(f"{table}.{field.name}", set()).add(name)
                defaults[f"{table}.{field.name}"] = default_of(field)
    listed = documented(table)
    assert {key: set(names.split(", ")) for key, (names, _, _) in listed.items()} == owners
    assert {key: default for key, (_, default, _) in listed.items()} == defaults


def test_the_table_of_model_keys_lists_every_field_of_every_family():
    families = MODELS.names("next")
    fields = {n: {f.name for f in dataclasses.fields(MODELS.get(n).Config)} for n in families}
    listed = {key: names for key, (names, _) in documented("model").items()}
    for key in MODEL_KEYS:
        assert listed.pop(f"model.{key}") == "all"
    assert set(listed) == {f"model.{key}" for keys in fields.values() for key in keys}
    for key, names in listed.items():
        having = {name for name, keys in fields.items() if key.removeprefix("model.") in keys}
        assert (set(families) if names == "all" else set(names.split(", "))) == having, key


@pytest.mark.parametrize("path", RECIPES, ids=ids)
def test_a_recipe_builds_and_every_key_has_a_comment(path):
    assert build(read(path)).model.name in ("transformer", "hyena")
    for line in path.read_text().splitlines():
        if re.match(r"\w+ = ", line):
            assert re.search(r"  # \S", line), f"{line}: no comment"
    files = tomllib.loads(path.read_text())["data"]["train"]
    for name in files if isinstance(files, list) else [files]:
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


def test_the_guide_shows_every_command():
    lines = " ".join(line for page in PAGES for line in commands(page))
    for verb in cli.VERBS:
        assert f"regard {verb}" in lines


def test_python_of_all_pages_parses():
    for page in (*PAGES, *EXPLANATIONS):
        for block in blocks(page, "python"):
            assert ast.parse(block).body


def test_the_contributors_page_shows_the_plugins_that_are_tested():
    package = ROOT / "tests" / "plugins" / "package"
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    (entry_points,) = package.glob("*.dist-info/entry_points.txt")
    for line in entry_points.read_text().splitlines():
        group, (name, _, target) = line.strip("[]"), line.partition(" = ")
        shown = (
            f'[project.entry-points."{group}"]' if line.startswith("[") else f'{name} = "{target}"'
        )
        assert not line or shown in page, shown
