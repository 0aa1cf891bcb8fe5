"""Options from the settings of tasks and modalities, such as --tokenizer or --patch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from regard.errors import UsageError, did_you_mean


def absolute(paths: Sequence[Path] | None) -> list[str]:
    """Return absolute paths, as a recipe has them."""
    return [str(path.resolve()) for path in paths or []]


def extra_options(arguments: Sequence[str]) -> dict[str, str]:
    """Return the values of options given as --name value or --name=value, by name."""
    options: dict[str, str] = {}
    words = iter(arguments)
    for word in words:
        if not word.startswith("--"):
            raise UsageError(f"unexpected argument {word!r}")
        name, equals, value = word[2:].partition("=")
        if not equals:
            value = next(words, "")
            if not value or value.startswith("--"):
                raise UsageError(f"option --{name} needs a value; see regard train --help")
        options[name.replace("-", "_")] = value
    return options


class SettingsCommand(TyperCommand):
    """A command that also accepts the settings of tasks and modalities as options; the `args` of
    its context hold them.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        declared = {name for param in self.params for name in (*param.opts, *param.secondary_opts)}
        declared |= set(ctx.help_option_names)
        known: list[str] = []
        extra: list[str] = []
        words = iter(args)
        for word in words:
            name, equals, _ = word.partition("=")
            if word == "--":
                known += [word, *words]
            elif not word.startswith("--") or name in declared:
                known.append(word)
            else:
                self._check_name(name, declared)
                extra += [word] if equals else [word, *islice(words, 1)]
        super().parse_args(ctx, known)
        ctx.args = extra
        return extra

    def _check_name(self, name: str, declared: set[str]) -> None:
        names = dict(settings())
        if name not in names:
            hint = did_you_mean(name, [*sorted(declared), *names])
            raise UsageError(f"no such option: {name}; {hint} (see regard {self.name} --help)")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        super().format_options(ctx, formatter)
        with formatter.section("Settings of tasks and modalities (--NAME VALUE)"):
            formatter.write_dl(list(settings()))


def settings() -> Iterator[tuple[str, str]]:
    """Yield each setting as an option, with the tasks or modalities that have it."""
    from regard.registry import MODALITIES, TASKS

    for registry, noun in ((TASKS, "task"), (MODALITIES, "input")):
        names: dict[str, list[str]] = {}
        for name in registry:
            for field in dataclasses.fields(registry[name].Config):
                if field.name != "name":
                    names.setdefault(field.name, []).append(name)
        for field_name, owners in names.items():
            yield f"--{field_name.replace('_', '-')}", f"{noun} {', '.join(owners)}"
