"""Opening a run folder: the best model with its tokenizers, as what its task makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.data.inputs import InputReader
from regard.data.labelled import columns_of
from regard.data.targets import Targets
from regard.data.views import views_of
from regard.decoding import ForbiddenTransitions
from regard.errors import UserError
from regard.evaluation.predictions import targets_of
from regard.layers.int8 import to_int8
from regard.models.seq2seq import Ensemble, Seq2SeqModel
from regard.models.supervised import SupervisedModel
from regard.models.word2vec import Word2Vec
from regard.pipelines.generator import Generator
from regard.pipelines.predictor import Predictor
from regard.pipelines.translator import Translator
from regard.pipelines.word_vectors import WordVectors
from regard.recipe import DataRecipe, check, read
from regard.run import (
    CONFIG,
    FACTS,
    FORBIDDEN,
    RECIPE,
    SOURCE_TOKENIZER,
    TOKENIZER,
    load_model,
    open_run,
    read_metadata,
)
from regard.storage import read_json
from regard.tokenizers import Pretrained, Tokenizer
from regard.tokenizers import load as load_tokenizer
from regard.training.precision import choose_device


def load(
    run: str | Path, *, int8: bool = False, device: str = "cpu"
) -> Generator | Translator | Predictor | WordVectors:
    """The best model of a run folder, with its tokenizers and forbidden transitions: a Predictor of
    what comes next, where the run translates an Interpreter, where it has learned labels or values
    an Examiner, and of word vectors a Glossary.

    With `int8`, its linear layers hold int8 weights: faster on a CPU, and not quite the same.
    `device` is where it computes: cpu, cuda, cuda:1 or auto, a GPU where there is one.
    """
    folder, where = open_run(run), choose_device("cpu" if int8 else device)
    model = load_model(folder).to(where)
    if int8:
        to_int8(model)
    tokenizer = load_run_tokenizer(folder, TOKENIZER, model.vocab_size)
    path = folder / FORBIDDEN
    forbidden = ForbiddenTransitions.load(path) if path.exists() else None
    if forbidden is not None and forbidden.vocab_size != model.vocab_size:
        raise UserError(f"{path} is for {forbidden.vocab_size} tokens, not {model.vocab_size}")
    if isinstance(model, Word2Vec):
        return WordVectors(model, tokenizer, folder)
    if isinstance(model, SupervisedModel):
        known = data_metadata(folder)
        views = views_of(known.get("augment", ""), known.get("views", 0))
        asked = Targets("masked", ()) if model.task == "masked" else targets_of(folder)
        check_targets(folder, model, asked)
        return Predictor(model, tokenizer, asked, folder, views, known)
    if not isinstance(model, Seq2SeqModel):
        return Generator(model, tokenizer, folder, forbidden)
    own = getattr(model.config, "source_vocab", 0)
    sources = load_run_tokenizer(folder, SOURCE_TOKENIZER, own) if own else tokenizer
    known = data_metadata(folder)
    return Translator(model, tokenizer, sources, run=folder, forbidden=forbidden, told=known)


def check_targets(folder: Path, model: SupervisedModel, asked: Targets) -> None:
    """Refuse a run whose files do not agree on what it predicts."""
    if model.task == "masked":
        return
    whole = asked.task in ("label", "position-label")
    named = len(asked.classes[0]) if whole else len(asked.names)
    if asked.task != model.task or named != model.config.n_outputs:
        raise UserError(
            f"{folder}: {FACTS} says {asked.task} with {named} outputs, {CONFIG} {model.task} with "
            f"{model.config.n_outputs}"
        )


def data_metadata(folder: Path) -> dict[str, Any]:
    """What a run knows of the data it was trained on; nothing where it was imported."""
    data: dict[str, Any] = read_metadata(folder).get("data", {})
    return data


def input_reader(folder: Path) -> InputReader:
    """How a run reads files: as its training files were read."""
    known, path = data_metadata(folder), folder / RECIPE
    if "reading" in known or not path.exists():
        return InputReader.stored(known)
    # a run from before regard.json had this
    data = check("data", DataRecipe, read(path).get("data", {}))
    reading = {
        "inputs": list(columns_of(data.input)),
        "targets": list(columns_of(data.target)),
        "labels": data.labels,
        "pattern": data.pattern,
        "encoding": data.encoding,
        "missing": list(data.missing),
        "per_line": data.per_line,
        "strip": "targets" in known,
    }
    return InputReader.stored(known | {"reading": reading})


def load_run_tokenizer(folder: Path, name: str, size: int) -> Tokenizer:
    """A tokenizer of a run folder, which must have `size` tokens."""
    found = load_tokenizer(folder / name)
    rounded_up = isinstance(found, Pretrained) and found.vocab_size < size
    if found.vocab_size != size and not rounded_up:  # published models round up
        raise UserError(f"{folder}: {name} has {found.vocab_size} tokens, {CONFIG} says {size}")
    return found


def load_generator(run: str | Path, *, int8: bool = False, device: str = "cpu") -> Generator:
    """The Predictor of a run folder; that of another task is a UserError."""
    found = load_sequence_model(run, int8=int8, device=device)
    if isinstance(found, Translator):
        raise UserError(
            f"{run} translates (task target), and this needs a run that predicts the next symbol "
            "(task next): use `regard translate`, or `regard evaluate` and `regard score` on pairs"
        )
    return found


def load_translator(
    run: str | Path, *others: str | Path, int8: bool = False, device: str = "cpu"
) -> Translator:
    """The Interpreter of a run folder; that of another task is a UserError.

    Where there are `others`, runs with the same tokens, all translate together: a word has the mean
    of the probabilities they give it.
    """
    found = load_sequence_model(run, int8=int8, device=device)
    if isinstance(found, Generator):
        raise UserError(
            f"{run} predicts the next symbol (task next); translate needs a run of task target, "
            "as `regard train SOURCE TARGET` makes"
        )
    if not others:
        return found
    members = [found.model]
    for other in others:
        one = load_translator(other, int8=int8, device=device)
        for name in (TOKENIZER, SOURCE_TOKENIZER):
            if read_document(run, name) != read_document(other, name):
                raise UserError(
                    f"{other} has another {name} than {run}; runs translate together that have the "
                    "same tokens, as those of one recipe do whatever their train.seed"
                )
        members.append(one.model)
    return Translator(
        Ensemble(members),
        found.tokenizer,
        found.source_tokenizer,
        run=found.run,
        forbidden=found.forbidden,
        told=found.told,
    )


def read_document(run: str | Path, name: str) -> Any:
    """What stands in a file of a run folder; None where there is none."""
    path = open_run(run) / name
    return read_json(path) if path.exists() else None


def load_predictor(run: str | Path, *, device: str = "cpu") -> Predictor:
    """The Examiner of a run folder; that of another task is a UserError."""
    found = load(run, device=device)
    if not isinstance(found, Predictor):
        raise UserError(
            f"{run} is of task {task_of(found)}; this needs a run of labels or values, "
            "as `regard train FILE --target COLUMN` makes"
        )
    return found


def load_embedder(run: str | Path, *, device: str = "cpu") -> Predictor | WordVectors:
    """What makes vectors of texts; a run that does not is a UserError."""
    found = load(run, device=device)
    if not isinstance(found, Predictor | WordVectors):
        raise UserError(
            f"{run} is of task {task_of(found)}; this needs a run of labels or values, as "
            "`regard train FILE --target COLUMN` makes, or of word vectors (--model skipgram)"
        )
    return found


def load_word_vectors(run: str | Path) -> WordVectors:
    """The Glossary of a run folder; that of another task is a UserError."""
    found = load(run)
    if not isinstance(found, WordVectors):
        raise UserError(
            f"{run} is of task {task_of(found)}; this needs word vectors, "
            "as `regard train FILE --model skipgram` makes"
        )
    return found


def task_of(found: Generator | Translator | Predictor | WordVectors) -> str:
    """The task of what a run folder holds."""
    if isinstance(found, Predictor):
        return found.targets.task
    kinds = {Generator: "next", Translator: "target", WordVectors: "vectors"}
    return kinds[type(found)]


def load_sequence_model(
    run: str | Path, *, int8: bool = False, device: str = "cpu"
) -> Generator | Translator:
    """What speaks of a run folder; one that answers is a UserError."""
    found = load(run, int8=int8, device=device)
    if isinstance(found, WordVectors):
        raise UserError(
            f"{run} holds word vectors (task vectors): use `regard look`, `regard embed` or "
            "`regard evaluate`"
        )
    if isinstance(found, Predictor):
        verb = "train FILE --pretrain" if found.targets.task == "masked" else "classify"
        raise UserError(
            f"{run} answers (task {found.targets.task}): use `regard {verb}`, `regard embed` or "
            "`regard evaluate`"
        )
    return found
