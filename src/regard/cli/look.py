"""regard look"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.api import Predictor

HELD_OUT = 128  # tokens of held-out running text that are read when no text is given


def command(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    text: Annotated[
        str,
        typer.Argument(help="What the model reads, or a file of it; default a held-out record."),
    ] = "",
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("look.html"),
    png: Annotated[Path | None, typer.Option(help="Also a picture (.png or .svg).")] = None,
    beams: Annotated[int, typer.Option(min=1, max=32, help="Width of the beam tree.")] = 4,
) -> None:
    """What happens inside, as one HTML page.

    Attention, surprise, choices and beams of the model reading TEXT; the page needs no network.

    Example: regard look runs/names-transformer isabella --out look.html
    """
    from regard.api import load_predictor
    from regard.errors import UsageError, UserError
    from regard.look.figures import FORMATS, save
    from regard.look.language import language_page
    from regard.look.subject import fitted, run_facts

    if png is not None and png.suffix.lower() not in FORMATS:
        raise UsageError(f"--png must end in {', '.join(FORMATS)}, got {png.name!r}")
    predictor = load_predictor(run)
    whole = chosen(predictor, text)
    model, tokenizer = predictor.model, predictor.tokenizer
    ids, cut = fitted(whole, model.config.max_len)
    unknown = sum(i == tokenizer.unk for i in ids if tokenizer.unk != tokenizer.end)
    if unknown:
        say(f"{unknown:,} symbols are not in the vocabulary and are read as <unk>")
    facts = run_facts(predictor.run, model, tokenizer)
    if cut:
        say(cut)
        facts.append(("text", cut))
    read = " ".join(tokenizer.decode([i for i in ids if i != tokenizer.start]).split())
    name = predictor.run.resolve().name
    page = language_page(
        model,
        tokenizer,
        ids,
        title=f"{name} reads “{read[:40]}{'…' if len(read) > 40 else ''}”",
        facts=facts,
        constrain=predictor.forbidden,
        beams=beams,
        continues=predictor.text or bool(cut),
    )
    for path in (out, png):
        if path is None:
            continue
        try:
            print(page.write(path) if path is out else save(page.components, path))
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from None


def say(words: str) -> None:
    """A remark, beside the result."""
    print(words, file=sys.stderr)


def chosen(predictor: Predictor, text: str) -> list[int]:
    """The ids to read: of the text given, of the file it names, held out, or made by the model."""
    from regard.api import held_out
    from regard.errors import UserError
    from regard.look.subject import file_named, text_of

    path = file_named(text) if text else None
    if path is not None:
        say(f"reading the beginning of the file {path}")
        text = text_of(path, running=predictor.text, most=predictor.model.config.max_len)
    if text:
        return predictor.prompt_ids(text)
    try:
        side, shard = held_out(predictor.run, predictor)
    except UserError:
        say("no text given and nothing held out in the run: reading what the model itself says")
        made = predictor.generate(max_new=predictor.model.config.max_len - 1)[0][0].ids
        return [predictor.tokenizer.start, *(i for i in made if i != predictor.tokenizer.end)]
    record = [int(i) for i in shard.record(0)[:-1]]  # without <E>
    what = "the beginning" if predictor.text else "the first record"
    say(f"no text given: reading {what} of the run's {side} data")
    return record[1 : 1 + HELD_OUT] if predictor.text else record
