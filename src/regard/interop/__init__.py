"""Other people's formats, read and written: which models can be exported in which format."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from regard.errors import UserError
from regard.run import Run
from regard.run_folders import CANDIDATES, CONFIG

Exporter = TypeVar("Exporter", bound=Callable[..., Any])

DESCRIPTIONS = {"hf": "a Hugging Face folder", "vec": "word vectors as text"}  # by --to
EXPORTERS: dict[str, dict[type, Callable[..., Any]]] = {name: {} for name in DESCRIPTIONS}
MODULES = ("hf_decoder", "hf_encoder", "hf_seq2seq", "word2vec_format")  # that register some


def register_format(name: str, *models: type) -> Callable[[Exporter], Exporter]:
    """Register what exports models of exactly these classes; subclasses compute something else."""

    def register(exporter: Exporter) -> Exporter:
        EXPORTERS[name] |= dict.fromkeys(models, exporter)
        return exporter

    return register


def load_exporters() -> None:
    """Import the modules that register exporters."""
    for module in MODULES:
        import_module(f"regard.interop.{module}")


def export_refusal(family: type, config: Any) -> str:
    """Return why a model of a family that can be exported as a Hugging Face folder cannot be with
    this configuration; otherwise "".
    """
    load_exporters()
    choose_format = EXPORTERS["hf"].get(family)
    if choose_format is None:
        return ""
    try:
        choose_format(config)
    except UserError as error:
        return str(error)
    return ""


def exportable_candidates(name: str, run: Path) -> list[Path]:
    """Return the runs of models that lost the selection of a run and that can be exported."""
    folders = sorted(path.parent for path in (run / CANDIDATES).glob(f"*/{CONFIG}"))
    models = [(folder, Run.open(folder).model()) for folder in folders]
    return [
        folder
        for folder, model in models
        if type(model) in EXPORTERS[name] and not export_refusal(type(model), model.config)
    ]


def find_exporter(name: str, run: Path) -> tuple[Callable[..., Any], Any]:
    """Return what exports the model of a run folder in a format, and the model.

    A model that has no such exporter is a UserError that names what can be done instead.
    """
    load_exporters()
    model = Run.open(run).model()
    if type(model) in EXPORTERS[name]:
        return EXPORTERS[name][type(model)], model
    others = [f"--to {other}" for other, table in EXPORTERS.items() if type(model) in table]
    hint = f"use {' or '.join(others)}"
    if not others:
        hint = f"only {', '.join(cls.__name__ for cls in EXPORTERS[name])} can"
        if candidates := exportable_candidates(name, run):
            hint = f"of the models that were tried, {' or '.join(map(str, candidates))} can"
    raise UserError(
        f"{run}: {type(model).__name__} cannot be exported as {DESCRIPTIONS[name]}; {hint}"
    )
