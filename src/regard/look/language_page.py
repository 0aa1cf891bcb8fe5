"""The page of `regard look` about a language model reading one text."""

from __future__ import annotations

from collections.abc import Sequence

from regard.look.decoding_views import add_beam_search, add_next, add_samples, add_surprise
from regard.look.internals import ForwardTrace, add_inside
from regard.look.page import Page
from regard.models.language_model import Constrain, LanguageModel
from regard.tokenizers import Tokenizer


def language_page(
    model: LanguageModel,
    tokenizer: Tokenizer,
    ids: list[int],
    *,
    title: str,
    facts: Sequence[tuple[str, object]] = (),
    constrain: Constrain | None = None,
    banned: Sequence[int] | None = None,
    beams: int = 4,
    continues: bool,
) -> Page:
    """Return the page about a model reading `ids`; for the arguments see `ForwardTrace`.

    `banned` tokens are never generated, by default the specials other than the end token.
    """
    if banned is None:
        banned = tokenizer.never_produced(model.vocab_size)
    trace = ForwardTrace(model, tokenizer, ids, continues, constrain, banned)
    page = Page.about(title, facts)
    add_surprise(page, trace)
    add_next(page, trace)
    add_inside(page, trace)
    add_beam_search(page, trace, beams)
    add_samples(page, trace)
    return page
