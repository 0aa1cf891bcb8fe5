"""Write the generated parts of docs/: keys, commands, models, metrics, modules and others; and the
recipe keys as a file of the package, which the studio lists.

python scripts/build_reference.py            writes them
python scripts/build_reference.py --check    only names pages that differ, with exit status 1

A page encloses a generated part in `<!-- generated: NAME -->` and `<!-- end -->`. Where a table has
a column that only a person can write, it is the last one, and its cells are kept row by row. A new
row starts with an empty cell there, which the tests refuse.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import sys
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "regard"
DOCS = ROOT / "docs"
RECIPE_KEYS = DOCS / "reference" / "recipe.md"
SETTINGS = PACKAGE / "studio" / "settings.json"
CHECK = "--check"
BLOCK = re.compile(r"(<!-- generated: ([\w-]+) -->\n)(.*?)(<!-- end -->\n)", re.DOTALL)
CELLS = re.compile(r"(?<!\\)\|")  # between the cells of a row
PROBES = ("?", -(10**6))  # no text setting has the first value, no number the second
ALLOWED = re.compile(r"(?:one of|of|are) (?P<names>[\w, -]+?)(?:, got .*)?$")
BOUNDS = re.compile(r"must (?:be )?(?P<bounds>.+), got ")
WORDS = {str: "text", int: "integer", float: "number", bool: "`true`, `false`"}

Part = Callable[[Mapping[str, str]], str]
PARTS: dict[str, Part] = {}


def part(name: str) -> Callable[[Part], Part]:
    """Register what writes a generated part, given the hand-written last cells by first cell."""

    def register(function: Part) -> Part:
        PARTS[name] = function
        return function

    return register


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(cells).rstrip() + " |\n" for cells in lines)


def last_cells(text: str) -> dict[str, str]:
    """Return the last cell of each row of the tables of a text, by the first."""
    rows = [CELLS.split(line) for line in text.splitlines() if line.startswith("|")]
    return {row[1].strip(): row[-2].strip() for row in rows if len(row) > 3}


def code(value: object) -> str:
    return f"`{value}`"


def listed(values: Iterable[object]) -> str:
    return ", ".join(map(code, values))


def summary(text: str | None) -> str:
    """Return the first sentence of a docstring as a cell, without references in parentheses."""
    paragraph = " ".join((text or "").split("\n\n")[0].split())
    paragraph = re.sub(r" \((?:[A-Z]|van )[^()]* \d{4}[^()]*\)", "", paragraph)
    sentence, stop, _ = paragraph.partition(". ")
    return (sentence + ("." if stop else "")).replace("|", "\\|")


# Recipe keys


def allowed(annotation: Any, check: Callable[[object], object]) -> str:
    """Return what a setting may be: by its type, or as `check` says when it refuses a value."""
    if typing.get_origin(annotation) is typing.Literal:
        return listed(typing.get_args(annotation))
    if typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    if typing.get_origin(annotation) is tuple:
        one = typing.get_args(annotation)[0]
        names = refusal(check, [PROBES[0]], ALLOWED) if one is str else ""
        return f"list of {WORDS[one].removesuffix('s')}s" + (f": {names}" if names else "")
    if annotation is str:
        return refusal(check, PROBES[0], ALLOWED) or WORDS[str]
    bounds = annotation is not bool and refusal(check, PROBES[1], BOUNDS)
    return WORDS[annotation] + (f", {bounds}" if bounds else "")


def refusal(check: Callable[[object], object], value: object, pattern: re.Pattern[str]) -> str:
    """Return what is allowed instead of a value, or "" if the check accepts it."""
    from regard.errors import UserError

    try:
        check(value)
    except UserError as error:
        match = pattern.search(str(error))
        if match is None:
            return ""
        found = match.groupdict()
        if "names" in found:
            return listed(found["names"].split(", "))
        return str(found["bounds"]).replace("a positive whole number", "positive")
    return ""


def default_of(field: dataclasses.Field[Any]) -> str:
    """Return the default of a setting as TOML writes it."""
    from regard.recipe import toml_value

    if field.default is dataclasses.MISSING:
        return ""
    value = list(field.default) if isinstance(field.default, tuple) else field.default
    return code(toml_value(value))


def settings(cls: type) -> Iterable[tuple[dataclasses.Field[Any], Any]]:
    """Yield the fields of a table's dataclass that a user sets, with their types."""
    hints = typing.get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        if field.name != "name":
            yield field, hints[field.name]


def fixed_table(section: str, cls: type, kept: Mapping[str, str]) -> str:
    """Return the keys of [data] or [train]."""
    from regard.recipe import check

    rows = []
    for field, annotation in settings(cls):
        key = code(f"{section}.{field.name}")
        values = allowed(annotation, lambda value, f=field: check(section, cls, {f.name: value}))
        rows.append((key, default_of(field), values, kept.get(key, "")))
    return table(("key", "default", "values", "what it does"), rows)


@part("keys-data")
def keys_data(kept: Mapping[str, str]) -> str:
    from regard.recipe import DataRecipe

    return fixed_table("data", DataRecipe, kept)


@part("keys-train")
def keys_train(kept: Mapping[str, str]) -> str:
    from regard.recipe import TrainRecipe

    return fixed_table("train", TrainRecipe, kept)


def registry_table(section: str, owner: str, registry: Any, kept: Mapping[str, str]) -> str:
    """Return the keys of [task], [input] or [augment], with the objects that have each."""
    from regard.recipe import check

    rows: dict[str, tuple[list[str], str, list[str]]] = {}
    for name in registry:
        cls = registry[name].Config
        for field, annotation in settings(cls):

            def probe(value: object, n: str = name, c: type = cls, f: Any = field) -> object:
                return check(section, c, {"name": n, f.name: value})

            names, _, values = rows.setdefault(field.name, ([], default_of(field), []))
            names.append(name)
            text = allowed(annotation, probe)
            if text not in values:
                values.append(text)
    lines = []
    for key, (names, default, values) in rows.items():
        choices = list(dict.fromkeys(v for text in values for v in text.split(", ")))
        text = ", ".join(choices) if all(v.startswith("`") for v in choices) else values[0]
        key = code(f"{section}.{key}")
        lines.append((key, ", ".join(names), default, text, kept.get(key, "")))
    return table(("key", owner, "default", "values", "what it does"), lines)


@part("keys-task")
def keys_task(kept: Mapping[str, str]) -> str:
    from regard.registry import TASKS

    return registry_table("task", "tasks", TASKS, kept)


@part("keys-input")
def keys_input(kept: Mapping[str, str]) -> str:
    from regard.registry import MODALITIES

    return registry_table("input", "modalities", MODALITIES, kept)


@part("keys-augment")
def keys_augment(kept: Mapping[str, str]) -> str:
    from regard.registry import AUGMENTATIONS

    return registry_table("augment", "augmentations", AUGMENTATIONS, kept)


@part("keys-model")
def keys_model(kept: Mapping[str, str]) -> str:
    """The keys of [model] of all families, with their default where all families agree."""
    from regard.recipe import build_model, toml_value
    from regard.registry import MODELS, resolve

    names: dict[str, list[str]] = {}
    defaults: dict[str, set[str]] = {}
    values: dict[str, str] = {}
    for entry in MODELS.entries:
        task, cls = entry.tasks[0], resolve(entry.target).Config
        configs = [
            build_model({"name": entry.name, "size": size}, task, entry.reads).config
            for size in (2, 4)
        ]
        for field, annotation in settings(cls):

            def probe(value: object, e: Any = entry, t: str = task, f: Any = field) -> object:
                return build_model({"name": e.name, f.name: value}, t, e.reads)

            if entry.name not in names.setdefault(field.name, []):
                names[field.name].append(entry.name)
            for value in (getattr(config, field.name) for config in configs):
                value = toml_value(list(value) if isinstance(value, tuple) else value)
                defaults.setdefault(field.name, set()).add(value)
            values.setdefault(field.name, allowed(annotation, probe))
    rows = []
    for key in sorted(names):
        default = code(*defaults[key]) if len(defaults[key]) == 1 else "by preset or size"
        having = "all" if set(names[key]) == set(MODELS.names()) else ", ".join(names[key])
        key, text = code(f"model.{key}"), values[key]
        rows.append((key, having, default, text, kept.get(key, "")))
    return table(("key", "models", "default", "values", "what it does"), rows)


# Objects in registries


@part("models")
def models(kept: Mapping[str, str]) -> str:
    """A table of models for each kind of input and of prediction, in the order of a comparison."""
    from regard.registry import MODELS, TASKS, resolve

    sections: dict[str, list[tuple[str, ...]]] = {}
    for one in MODELS.entries:
        cls = resolve(one.target)
        task = TASKS[one.tasks[0]]
        purpose = "labels and values" if task.roles.labels else task.purpose
        title = f"{purpose.capitalize()}: {INPUTS[one.reads]}"
        fitted, presets = FITTED[cls.loop], listed(cls.PRESETS)
        row = (code(one.name), ", ".join(one.tasks), fitted, presets, summary(cls.__doc__))
        sections.setdefault(title, []).append(row)
    header = ("model", "tasks", "fitted by", "presets", "what it is")
    return "\n".join(f"## {title}\n\n{table(header, rows)}" for title, rows in sections.items())


INPUTS = {
    "tokens": "text, DNA, proteins, SMILES",
    "patches": "images",
    "points": "point clouds",
    "series": "time series",
}
FITTED = {
    "count": "counting",
    "em": "expectation–maximization",
    "solve": "a solver",
    "gradient": "gradients",
    "word2vec": "gradients",
}


@part("tokenizers")
def tokenizers(kept: Mapping[str, str]) -> str:
    from regard.registry import TOKENIZERS

    rows = [
        (code(name), str(TOKENIZERS[name].modality), kept.get(code(name), ""))
        for name in TOKENIZERS
        if TOKENIZERS[name].reads_text
    ]
    return table(("`--tokenizer`", "modality", "a token is"), rows)


@part("tasks")
def tasks(kept: Mapping[str, str]) -> str:
    from regard.registry import TASKS

    rows = [
        (code(name), summary(TASKS[name].__doc__), listed(verbs_of(TASKS[name].card.verbs)))
        for name in TASKS
    ]
    return table(("`--task`", "what is predicted", "verbs that take such a run"), rows)


def verbs_of(commands: Sequence[str]) -> list[str]:
    return [f"regard {command.split()[0]}" for command in commands if "train" not in command]


@part("tables")
def table_formats(kept: Mapping[str, str]) -> str:
    from regard.registry import TABLES

    rows = [(code(n), listed(TABLES[n].suffixes), summary(TABLES[n].__doc__)) for n in TABLES]
    return table(("`--format`", "extension", "contents"), rows)


@part("exports")
def exports(kept: Mapping[str, str]) -> str:
    from regard.interop.hugging_face import known_formats

    rows = [(code(form.name), kept.get(code(form.name), "")) for form in known_formats()]
    return table(("class of `transformers`", "configurations that are exported as it"), rows)


@part("metrics")
def metrics(kept: Mapping[str, str]) -> str:
    """All registered metrics: one row for each name, with the kinds of output that have it."""
    from regard import evaluation

    for path in sorted((PACKAGE / "evaluation").glob("*.py")):
        if path.stem != "__init__":
            __import__(f"regard.evaluation.{path.stem}")
    rows: dict[str, tuple[str, str, list[str]]] = {}
    for kind, registered in evaluation.METRICS.items():
        for name, metric in registered.items():
            better = "lower" if metric.lower_is_better else "higher"
            rows.setdefault(name, (metric.title, better, []))[2].append(kind)
    lines = [
        (code(name), title, better, ", ".join(kinds), kept.get(code(name), ""))
        for name, (title, better, kinds) in rows.items()
    ]
    return table(("metric", "in tables", "better", "of", "definition"), lines)


@part("checks")
def checks(kept: Mapping[str, str]) -> str:
    from regard.verify import BY_MODEL

    names = dict.fromkeys(code(name) for _, laws in BY_MODEL.values() for name in laws)
    return table(("check", "what is compared"), [(name, kept.get(name, "")) for name in names])


@part("experiments")
def experiments(kept: Mapping[str, str]) -> str:
    from regard.lab import EXPERIMENTS

    rows = [
        (f"`regard lab {name}`", one.question, one.file or "–", one.lecture)
        for name, one in EXPERIMENTS.items()
    ]
    return table(("command", "question", "FILE, if you have one", "deck and heading"), rows)


@part("zoo")
def zoo(kept: Mapping[str, str]) -> str:
    from regard.lab.zoo import ZOO

    rows = [
        (one.name, ", ".join(f"`{row}`" for row in one.rows) or "left out", one.note) for one in ZOO
    ]
    return table(("network of the chart", "rows here", "note"), rows)


@part("examples")
def examples(kept: Mapping[str, str]) -> str:
    from regard.bundled.examples import EXAMPLES

    rows = [
        (f"`regard example {name}`", one.about, code(one.command), one.origin)
        for name, one in EXAMPLES.items()
    ]
    return table(("command", "files", "try", "origin"), rows)


@part("gallery")
def gallery(kept: Mapping[str, str]) -> str:
    """The pictures of scripts/build_pictures.py, each a link to its page, and its commands."""
    from build_pictures import SHOTS

    lines = []
    for name, shot in SHOTS.items():
        picture = f"[![{shot.title}](pictures/{name}.png)](gallery/{name}.html)"
        lines += [f"## {shot.title}", "", shot.about, "", picture, ""]
        lines += ["```sh", *shot.commands(f"{name}.html"), "```", ""]
    return "\n".join(lines)


# Commands


@part("commands")
def commands(kept: Mapping[str, str]) -> str:
    """Every verb: its help, usage, arguments and options, as `--help` has them."""
    import typer

    from regard import cli

    if not cli.app.registered_commands:
        cli._fill()
    group = typing.cast(Any, typer.main.get_command(cli.app))
    return "\n".join(command(verb, group.commands[verb]) for verb in cli.VERBS)


def command(verb: str, one: Any) -> str:
    """Return the section of one verb."""
    import typer

    from regard.cli import WITH_SETTINGS

    context = typer.Context(one, info_name=f"regard {verb}")
    records = [(param.get_help_record(context), param) for param in one.params]
    rows = [option_row(*record) for record, _ in records if record]
    usage = one.get_usage(context).removeprefix("Usage: ").replace("\n", " ")
    lines = [f"## {verb}", "", *help_lines(one.help), "```text", " ".join(usage.split()), "```", ""]
    lines += [table(("argument or option", "what it does", "default"), rows)]
    if verb in WITH_SETTINGS:
        lines += [
            "The settings of [tasks](recipe.md#task) and [modalities](recipe.md#input-and-output) "
            "are options, too: `--horizon 24`, `--tokenizer bpe`.",
            "",
        ]
    return "\n".join(lines)


def option_row(name: str, text: str) -> tuple[str, str, str]:
    """Return an option, what it does and its default, from a record of --help."""
    text, _, facts = text.partition("  [")
    parts = facts.removesuffix("]").split("; ")
    default = next((p.removeprefix("default: ") for p in parts if p.startswith("default")), "")
    bounds = [p for p in parts if p and not p.startswith(("default", "required"))]
    text += f" ({', '.join(bounds)})" if bounds else ""
    shown = "required" if "required" in parts else default and code(default)
    return code(name), escape(text), shown


def help_lines(text: str) -> list[str]:
    """Return the paragraphs of a help text; commands in it become code."""
    lines = []
    for paragraph in text.split("\n\n"):
        line = " ".join(paragraph.split())
        if line.startswith("Example: "):
            lines += ["```sh", line.removeprefix("Example: "), "```", ""]
        else:
            lines += [re.sub(r"(?<=: )(regard [^;·]*[^;·. ])", r"`\1`", escape(line)), ""]
    return lines


def escape(text: str) -> str:
    """Escape what Markdown would read as a tag, a cell or emphasis."""
    return re.sub(r"(?<!`)(<[^ >]+>)", r"`\1`", text).replace("|", "\\|").replace("*", "\\*")


# Lectures


def entry_lines(title: str, entry: Any) -> list[str]:
    """Return the section of an entry: idea, correction, commands, figure, class and test."""
    from regard.lectures import load_errata

    lines = [f"## {escape(title)}", ""]
    if entry.reason:
        lines += [f"No command: {entry.reason.removesuffix('.')}.", ""]
    if entry.idea:
        lines += [escape(entry.idea), ""]
    if entry.erratum:
        link = f"[{entry.erratum}](errata.md#{entry.erratum.lower()})"
        lines += [f"Correction: {escape(load_errata()[entry.erratum].right)} ({link})", ""]
    if entry.command:
        lines += ["```sh", *entry.commands, "```", "", f"- Shows: {escape(entry.shows)}."]
        if entry.live:
            lines += [f"- Live page: [{entry.live}](../gallery/{entry.live}.html)."]
        if entry.left:
            lines += [f"- Left out: {escape(entry.left)}."]
        test = f" Test: [`{entry.tests}`](../../{entry.tests})." if entry.tests else ""
        lines += [f"- Class: {code_link(entry)}.{test}", ""]
    return lines


def code_link(entry: Any) -> str:
    """Return a link to the file of a class, if there is one."""
    name = entry.code.removeprefix("regard.")
    return f"[`{name}`](../../src/{entry.source})" if name else "–"


def command_cell(commands: Iterable[str]) -> str:
    return "<br>".join(map(code, commands)) or "–"


def lecture(number: str) -> Part:
    def write(kept: Mapping[str, str]) -> str:
        from regard.lectures import load_deck

        sections = (entry_lines(one.title, one) for one in load_deck(number).headings)
        return "\n".join(line for section in sections for line in section)

    return write


for _number in ("000", "001", "002", "003", "004"):
    PARTS[f"lecture-{_number}"] = lecture(_number)


@part("headings")
def headings(kept: Mapping[str, str]) -> str:
    """How many headings of each lecture have an entry, and which have none."""
    from regard.lectures import DECKS, load_deck

    rows, missing = [], []
    for deck in map(load_deck, DECKS):
        without = [entry for entry in deck.headings if entry.reason]
        counts = len(deck.headings), len(deck.headings) - len(without), len(without)
        rows.append((f"[{deck.number}]({deck.number}.md)", deck.title, *map(str, counts)))
        missing += [(deck.number, escape(entry.title), entry.reason) for entry in without]
    header = ("lecture", "title", "headings", "with an entry", "left out")
    return table(header, rows) + "\n" + table(("lecture", "left out", "because"), missing)


@part("concepts")
def concepts(kept: Mapping[str, str]) -> str:
    from regard.lectures import load_concepts

    sections = (entry_lines(f"{n}: {one.title}", one) for n, one in load_concepts().items())
    return "\n".join(line for section in sections for line in section)


def shown_cell(entry: Any) -> str:
    """Return what a command shows, and the class, in one cell."""
    return f"{escape(entry.shows)}<br>{code_link(entry)}" if entry.command else "–"


@part("plots")
def plots(kept: Mapping[str, str]) -> str:
    from regard.lectures import load_entries

    rows = [
        (f"{i}", escape(one.title), command_cell(one.commands), shown_cell(one))
        for i, one in enumerate(load_entries("plots"), start=1)
    ]
    return table(("", "figure", "command", "page and class"), rows)


@part("systems")
def systems(kept: Mapping[str, str]) -> str:
    from regard.lectures import load_entries

    rows = []
    for one in load_entries("systems"):
        here = f"{command_cell(one.commands)}<br>{shown_cell(one)}" if one.command else "–"
        rows.append((escape(one.title), escape(one.idea), here, escape(one.left or one.reason)))
    return table(("named", "the lecture says", "what runs here", "left out"), rows)


@part("errata")
def errata(kept: Mapping[str, str]) -> str:
    """The statements of the lectures that are loose or wrong, a section for each."""
    from regard.lectures import load_errata

    lines = []
    for number, one in load_errata().items():
        lines += [f"## {number}", "", f"Lecture {one.deck} states: “{escape(one.says)}”.", ""]
        lines += [f"Right is: {escape(one.right)}", "", f"Reference: {one.reference}.", ""]
        if one.commands:
            lines += ["```sh", *one.commands, "```", ""]
    return "\n".join(lines)


# Modules


@part("modules")
def modules(kept: Mapping[str, str]) -> str:
    """The modules of the package, folder by folder."""
    folders = sorted({path.parent for path in PACKAGE.rglob("*.py")})
    lines = []
    for folder in folders:
        name = folder.relative_to(PACKAGE.parent).as_posix()
        lines += [f"### `{name}/`", "", module_summary(folder / "__init__.py"), ""]
        files = [path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]
        lines += [*(f"- `{path.name}`: {module_summary(path)}" for path in files), ""]
    return "\n".join(lines)


def module_summary(path: Path) -> str:
    """Return the first sentence of a module's docstring, on one line."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    sentence, stop, _ = " ".join(text.split("\n\n")[0].split()).partition(". ")
    return sentence + ("." if stop else "")


def build(page: str) -> str:
    """Return a page with its generated parts written again."""

    def write(match: re.Match[str]) -> str:
        begin, name, old, end = match.groups()
        return f"{begin}\n{PARTS[name](last_cells(old)).strip()}\n\n{end}"

    return BLOCK.sub(write, page)


def pages() -> list[Path]:
    """Return the pages that have generated parts."""
    return [path for path in sorted(DOCS.rglob("*.md")) if BLOCK.search(path.read_text())]


# Recipe keys for the studio


def recipe_settings(page: str) -> list[dict[str, Any]]:
    """Return the rows of all tables of recipe keys: the key, the tasks, modalities or models that
    have it, its default, what it may be, and what it does.
    """
    rows, names = [], list[str]()
    for line in page.splitlines():
        cells = [cell.strip() for cell in CELLS.split(line)[1:-1]]
        if not line.startswith("|") or cells[0].startswith("---"):
            continue
        if cells[0] == "key":
            names = cells
        elif re.fullmatch(r"`\w+\.\w+`", cells[0]):
            rows.append(setting_row(dict(zip(names, cells, strict=True))))
    return rows


def setting_row(cells: Mapping[str, str]) -> dict[str, Any]:
    """Return a row of recipe keys without Markdown; `choices` are the values, where these are
    listed one by one.
    """
    key, values = plain(cells["key"]), cells["values"]
    described = {"key", "default", "values", "what it does"}
    owners = [cell for name, cell in cells.items() if name not in described]
    names = [] if owners in ([], ["all"]) else owners[0].split(", ")
    listed_values = re.fullmatch(r"`[^`]+`(, `[^`]+`)*", values)
    return {
        "key": key,
        "of": names,
        "default": plain(cells.get("default", "")),
        "values": plain(values),
        "choices": plain(values).split(", ") if listed_values else [],
        "what": plain(cells["what it does"]),
    }


def plain(cell: str) -> str:
    """Return a cell without code quotes, links and escapes."""
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", cell).replace("`", "").replace("\\|", "|")


def settings_text(page: str) -> str:
    """Return the recipe keys as JSON, a line each."""
    rows = [json.dumps(row, ensure_ascii=False) for row in recipe_settings(page)]
    return "[\n" + ",\n".join(rows) + "\n]\n"


def main() -> int:
    texts = {path: build(path.read_text()) for path in pages()}
    texts[SETTINGS] = settings_text(texts[RECIPE_KEYS])
    stale = []
    for path, new in texts.items():
        if path.exists() and path.read_text() == new:
            continue
        if CHECK in sys.argv[1:]:
            stale.append(path.relative_to(ROOT).as_posix())
        else:
            path.write_text(new)
    if stale:
        print(f"run python scripts/build_reference.py: {', '.join(stale)} differ")
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main())
