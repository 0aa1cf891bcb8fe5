"""regard look"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.errors import one_line

if TYPE_CHECKING:
    from regard.api import Generator, Predictor, Translator, WordVectors
    from regard.look.page import Page
    from regard.look.translation_page import SourceTarget
    from regard.tokenizers import Tokenizer

HELD_OUT = 128  # tokens of held-out running text that are read when no text is given


def command(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    text: Annotated[
        str,
        typer.Argument(help="What it reads, a file of it, a picture; default a held-out record."),
    ] = "",
    target: Annotated[
        str,
        typer.Option(
            help="Of a translator: look at this translation; default its own. Of labels and "
            "values: explain this one too; default the second best."
        ),
    ] = "",
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("look.html"),
    png: Annotated[Path | None, typer.Option(help="Also a picture (.png or .svg).")] = None,
    beams: Annotated[
        int,
        typer.Option(min=0, max=32, help="Width of the beam tree; 0: 4, or 5 as translators have."),
    ] = 0,
) -> None:
    """What happens inside, as one HTML page.

    Attention, surprise, choices and beams of the model reading TEXT; of a translator also which
    word comes from which. Of labels and values: the answer and what in TEXT it rests on, what each
    head looks for, held-out records in the plane, right and wrong. Of word vectors: the words in
    the plane and their neighbours, and those of TEXT's words. Of masked pre-training: what is put
    at every position of TEXT, and at each <mask> in it. The page needs no network.

    Example: regard look runs/names-transformer isabella --out look.html

    Of pairs: regard look runs/en-de "a red house" --target "ein rotes Haus"

    Of labels: regard look runs/kinds "who is maria ?" --target number

    Of pictures, or of point clouds: regard look runs/digits-transformer digits.npz[12]

    Of words: regard look runs/text-skipgram "king river"

    Of masks: regard look runs/filled "the <mask> of the king"
    """
    from regard.errors import UsageError, UserError
    from regard.look.figures import FORMATS, save

    if png is not None and png.suffix.lower() not in FORMATS:
        raise UsageError(f"--png must end in {', '.join(FORMATS)}, got {png.name!r}")
    page = page_about(run, text, target, beams)
    for path in (out, png):
        if path is None:
            continue
        try:
            print(page.write(path) if path is out else save(page.components, path))
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from None


def page_about(run: Path, text: str, target: str, beams: int) -> Page:
    """The page about a run, whatever its task."""
    from regard.api import Predictor, Translator, WordVectors, load
    from regard.errors import UsageError

    model = load(run)
    if isinstance(model, Translator):
        return about_translator(model, run, text, target, beams or 5)
    if isinstance(model, Predictor):
        return about_examiner(model, run, text, target)
    if isinstance(model, WordVectors):
        return about_words(model, run, text)
    if target:
        raise UsageError(f"--target is for translators, and {run} predicts the next symbol")
    return about_language(model, text, beams or 4)


def about_language(generator: Generator, text: str, beams: int) -> Page:
    """The page about a language model reading a text."""
    from regard.look.language_page import language_page
    from regard.look.page_inputs import fitted, run_facts

    whole = chosen(generator, text)
    model, tokenizer = generator.model, generator.tokenizer
    ids, cut = fitted(whole, model.config.max_len)
    tell_unknown(ids, tokenizer)
    facts = run_facts(generator.run, model, tokenizer)
    if cut:
        say(cut)
        facts.append(("text", cut))
    read = tokenizer.decode([i for i in ids if i != tokenizer.start])
    return language_page(
        model,
        tokenizer,
        ids,
        title=f"{generator.run.resolve().name} reads {short(read)}",
        facts=facts,
        constrain=generator.forbidden,
        beams=beams,
        continues=generator.text or bool(cut),
    )


def about_translator(translator: Translator, run: Path, text: str, target: str, beams: int) -> Page:
    """The page about a translator reading a pair."""
    from regard.look.page_inputs import agreement_of, fitted, run_facts
    from regard.look.translation_page import translation_page

    if translator.sees:
        return about_captioner(translator, run, text, target, beams)
    pair = chosen_pair(translator, run, text, target)
    facts = run_facts(run, translator.model, translator.tokenizer)
    source = [int(i) for i in pair.source]
    for what, ids in (("source", source), ("translation given", pair.target or ())):
        cut = fitted(ids, translator.room)[1]
        if cut:
            say(f"{what}: {cut}")
            facts.append((what, cut))
    tell_unknown(source, translator.source_tokenizer)
    tell_unknown(pair.target or (), translator.tokenizer)
    return translation_page(
        translator,
        pair,
        title=f"{run.resolve().name} translates "
        + short(translator.source_tokenizer.decode(source)),
        facts=facts,
        agreement=agreement_of(run, translator.model, say),
        beams=beams,
    )


def about_captioner(translator: Translator, run: Path, name: str, target: str, beams: int) -> Page:
    """The page about a captioner looking at the picture that is named, or at the first held out."""
    from regard.api import held_out
    from regard.errors import UsageError, UserError
    from regard.look.caption_page import caption_page
    from regard.look.page_inputs import run_facts
    from regard.look.translation_page import SourceTarget

    if target and not name:
        raise UsageError("--target needs the picture that it tells: regard look RUN PICTURE")
    if name:
        (picture,) = translator.sources([name])
        tokens = translator.source_tokenizer.encode_batch([picture])[0]
        answer = translator.tokenizer.encode(target).tolist() if target else None
        pair = SourceTarget(tokens, answer)
    else:
        try:
            side, shard = held_out(run, translator)
        except UserError as error:
            raise UserError(f"no picture given, and {error}") from None
        assert shard.source is not None
        name = f"the first picture of the {side} part"
        say(f"no picture given: looking at {name}")
        pair = SourceTarget(shard.source.record(0), reference=shard.record(0)[1:-1].tolist())
    tell_unknown(pair.target or (), translator.tokenizer)
    return caption_page(
        translator,
        pair,
        title=f"{run.resolve().name} tells {Path(name).name}",
        facts=run_facts(run, translator.model, translator.tokenizer),
        beams=beams,
    )


def about_examiner(predictor: Predictor, run: Path, text: str, other: str) -> Page:
    """The page about a model of labels or values, answering a text or held-out records alone."""
    from regard.api import held_out
    from regard.errors import UsageError, UserError
    from regard.look.page_inputs import enough, run_facts
    from regard.look.prediction_page import prediction_page
    from regard.models.encoder import MaskedLM
    from regard.tokenizers import Patches, Points

    if isinstance(predictor.tokenizer, Patches | Points):
        return about_numbers(predictor, run, text, other)
    if isinstance(predictor.model, MaskedLM):
        return about_masked(predictor, run, text, other)
    text = text_given(text, running=False, most=predictor.model.config.max_len).strip()
    if other and not text:
        raise UsageError("--target needs a text whose answer is explained: regard look RUN TEXT")
    held = None
    try:
        held = held_out(run, predictor)
    except UserError as error:
        if not text:
            raise UserError(f"no text given, and {error}") from None
        say(f"{error}: the page is about the text alone")
    tell_unknown(predictor.tokenizer.encode(text).tolist(), predictor.tokenizer)
    name = run.resolve().name
    return prediction_page(
        predictor,
        text,
        title=f"{name} answers {short(text)}" if text else f"{name} on held-out records",
        facts=run_facts(run, predictor.model, predictor.tokenizer),
        held=held,
        some=enough(run, held) if held else None,
        other=other,
    )


def about_masked(predictor: Predictor, run: Path, text: str, other: str) -> Page:
    """The page about a model that fills in masked tokens: of a text, or of a held-out record."""
    from regard.api import held_out
    from regard.errors import UsageError, UserError
    from regard.look.masked_page import ids_of, masked_page
    from regard.look.page_inputs import fitted, run_facts
    from regard.models.encoder import MaskedLM

    model, tokenizer = predictor.model, predictor.tokenizer
    assert isinstance(model, MaskedLM)
    if other:
        raise UsageError(f"--target is for translators and labels, and {run} fills in masks")
    most = int(model.config.max_len)
    text = text_given(text, running=False, most=most).strip()
    if text:
        whole = ids_of(text, tokenizer)
    else:
        try:
            side, shard = held_out(run, predictor)
        except UserError as error:
            raise UserError(f"no text given, and {error}") from None
        whole = [int(i) for i in shard.record(0)]
        say(f"no text given: reading the first record of the run's {side} data")
    ids, cut = fitted(whole, most)
    if all(i in tokenizer.names and i != tokenizer.mask for i in ids):
        raise UserError("the text has no token of the model's vocabulary to fill in")
    tell_unknown(ids, tokenizer)
    facts = run_facts(run, model, tokenizer)
    if cut:
        say(cut)
        facts.append(("text", cut))
    read = text or tokenizer.decode([i for i in ids if i not in tokenizer.names])
    title = f"{run.resolve().name} fills in {short(read)}"
    return masked_page(model, tokenizer, ids, title=title, facts=facts)


def about_numbers(predictor: Predictor, run: Path, name: str, other: str) -> Page:
    """The page about a model of pictures or point clouds: of the one that is named, or of the first
    held out.
    """
    from regard.api import held_out
    from regard.data.inputs import thing_named
    from regard.errors import UserError
    from regard.look.page_inputs import enough, run_facts
    from regard.look.prediction_page import prediction_page
    from regard.tokenizers import Patches, Points

    what = "picture" if isinstance(predictor.tokenizer, Patches) else "cloud"
    held, place = None, name
    try:
        held = held_out(run, predictor)
    except UserError as error:
        if not name:
            raise UserError(f"no {what} given, and {error}") from None
        say(f"{error}: the page is about the {what} alone")
    if name:
        assert isinstance(predictor.tokenizer, Patches | Points)
        place, thing = thing_named(name, predictor.tokenizer, predictor.told)
    else:
        assert held is not None
        thing = held[1].record(0)
        if isinstance(predictor.tokenizer, Patches):
            thing = predictor.tokenizer.picture(thing)
        place = f"the first {what} of the {held[0]} part"
        say(f"no {what} given: looking at {place}")
    return prediction_page(
        predictor,
        thing,
        title=f"{run.resolve().name} looks at {Path(place).name}",
        facts=run_facts(run, predictor.model, predictor.tokenizer),
        held=held,
        some=enough(run, held) if held else None,
        other=other,
    )


def about_words(word_vectors: WordVectors, run: Path, text: str) -> Page:
    """The page about word vectors, and about the words of a text."""
    from regard.look.page_inputs import run_facts
    from regard.look.word_vector_page import word_vector_page

    facts = run_facts(run, word_vectors.model, word_vectors.tokenizer)
    name = run.resolve().name
    title = f"{name}: words near {short(text)}" if text else f"{name}: {len(word_vectors):,} words"
    return word_vector_page(word_vectors, text.split(), title=title, facts=facts)


def say(words: str) -> None:
    """A remark, beside the result."""
    print(one_line(words), file=sys.stderr)


def short(text: str) -> str:
    """The beginning of a text, in quotation marks."""
    text = " ".join(text.split())
    return f"“{text[:40]}{'…' if len(text) > 40 else ''}”"


def tell_unknown(ids: Sequence[int], tokenizer: Tokenizer) -> None:
    """Say how many symbols the model does not know, if any."""
    unknown = sum(i == tokenizer.unk for i in ids if tokenizer.unk != tokenizer.end)
    if unknown:
        say(f"{unknown:,} symbols are not in the vocabulary and are read as <unk>")


def text_given(text: str, *, running: bool, most: int) -> str:
    """The text, or what the file that it names begins with."""
    from regard.look.page_inputs import file_named, text_of

    path = file_named(text) if text else None
    if path is None:
        return text
    say(f"reading the beginning of the file {path}")
    return text_of(path, running=running, most=most)


def chosen(generator: Generator, text: str) -> list[int]:
    """The ids to read: of the text given, of the file it names, held out, or made by the model."""
    from regard.api import held_out
    from regard.errors import UserError

    text = text_given(text, running=generator.text, most=generator.model.config.max_len)
    if text:
        return generator.prompt_ids(text)
    try:
        side, shard = held_out(generator.run, generator)
    except UserError:
        say("no text given and nothing held out in the run: reading what the model itself says")
        made = generator.generate(max_new=generator.model.config.max_len - 1)[0][0].ids
        return [generator.tokenizer.start, *(i for i in made if i != generator.tokenizer.end)]
    record = [int(i) for i in shard.record(0)[:-1]]  # without <E>
    what = "the beginning" if generator.text else "the first record"
    say(f"no text given: reading {what} of the run's {side} data")
    return record[1 : 1 + HELD_OUT] if generator.text else record


def chosen_pair(translator: Translator, run: Path, text: str, target: str) -> SourceTarget:
    """What a translator is to read: what is given, or a pair that was held out."""
    from regard.api import held_out
    from regard.errors import UsageError, UserError
    from regard.look.translation_page import SourceTarget

    answer = translator.tokenizer.encode(target).tolist() if target else None
    text = text_given(text, running=False, most=translator.room)
    if text:
        return SourceTarget(translator.source_tokenizer.encode(text).tolist(), answer)
    if target:
        raise UsageError("--target needs the text that it translates: regard look RUN TEXT")
    try:
        side, shard = held_out(run, translator)
    except UserError as error:
        raise UserError(f"no text given, and {error}") from None
    assert shard.source is not None
    say(f"no text given: reading the first pair of the run's {side} data")
    source, reference = (part.record(0)[1:-1].tolist() for part in (shard.source, shard))
    return SourceTarget(source, reference=reference)
