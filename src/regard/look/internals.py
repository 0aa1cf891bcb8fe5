"""What happens inside a model as it reads one input: the traces that pages are made from, the
registries of views, and the views of attention, long filters and recurrent states.

A trace works on any `LanguageModel`, through its interface and named activations. A view registered
for a model class draws what is special about it; `register_view` is for what a model has learned
or does (the inside of a page), `register_evidence` for what its prediction rests on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.decoding import Beam, Generated, Node, Sample, Strategy, Trace, generate
from regard.decoding.engine import device_of, evaluating
from regard.layers.attention import Tap
from regard.layers.embeddings import Inputs
from regard.look.page import AttentionMaps, Heatmap, Lines, MaskMap, Page
from regard.models.decoder import Decoder
from regard.models.encoder_decoder import ConditionedDecoder
from regard.models.language_model import Constrain, LanguageModel
from regard.models.recurrent import ConditionedRecurrent, RecurrentModel
from regard.models.seq2seq import ConditionedLM, Seq2SeqModel
from regard.tokenizers import Tokenizer


@dataclass(frozen=True, eq=False)
class ForwardTrace:
    """What a model computes for `ids`: one to max_len tokens, normally `<S>` and a text.

    With `continues`, the ids are part of something longer; otherwise they are a complete record,
    which is scored with its `<E>`. `banned` tokens and what `constrain` forbids are never
    generated; `constrain` applies to the scores too.
    """

    model: LanguageModel
    tokenizer: Tokenizer
    ids: Sequence[int]
    continues: bool
    constrain: Constrain | None = None
    banned: Sequence[int] = ()

    def __post_init__(self) -> None:
        most = self.model.config.max_len
        if not 1 <= len(self.ids) <= most:
            raise ValueError(f"ids must hold 1 to max_len = {most} tokens, got {len(self.ids)}")
        for i in self.ids:
            if not 0 <= i < self.model.vocab_size:
                raise ValueError(f"ids must be from 0 to {self.model.vocab_size - 1}, got {i}")

    @property
    def tokens(self) -> list[str]:
        """The tokens the model reads, as displayed."""
        return self.names(self.ids)

    def names(self, ids: Iterable[int]) -> list[str]:
        """Return how each of these tokens is displayed."""
        return [self.tokenizer.text(int(i)) for i in ids]

    def _tensor(self, ids: Sequence[int]) -> Tensor:
        return torch.tensor([list(ids)], dtype=torch.int64, device=device_of(self.model))  # (1, T)

    @property
    def targets(self) -> list[int]:
        """The token that follows each of `ids`; after a complete record `<E>`, else unknown."""
        return [*self.ids[1:], *([] if self.continues else [self.tokenizer.end])]

    def surprise(self) -> tuple[list[int], NDArray[np.float64]]:
        """Return the targets and the bits of each, ∞ where the probability is 0.

        The first token of a text without `<S>` is predicted from nothing and has NaN bits.
        """
        targets = self.targets
        bits = np.zeros(0)
        if targets:
            inputs = self._tensor(self.ids[: len(targets)])
            with evaluating(self.model):
                nats = self.model.score(inputs, self._tensor(targets), constrain=self.constrain)
            bits = nats[0].double().cpu().numpy() / -math.log(2) + 0.0  # no -0
        if self.ids[0] != self.tokenizer.start:
            return [self.ids[0], *targets], np.concatenate([[math.nan], bits])
        return targets, bits

    def next_logits(self) -> NDArray[np.float64]:
        """Return (V,) logits of the next token; −∞ for what is banned or forbidden."""
        with evaluating(self.model):
            state = self.model.init_state(1, len(self.ids))
            ids = self._tensor(self.ids)
            logits = self.model.step(ids, None, state).float()  # (1, V)
            if self.banned:
                logits[:, list(self.banned)] = -math.inf
            if self.constrain is not None:
                logits = self.constrain(logits, ids[:, -1])
        return np.asarray(logits[0].double().cpu().numpy())

    def activations(self, *patterns: str, first: int | None = None) -> dict[str, Tensor]:
        """Return the named activations over the `first` tokens, in the order of computation.

        The models are causal: an activation does not depend on later tokens.
        """
        tap = Tap(patterns)
        ids = self._tensor(self.ids[:first])
        with evaluating(self.model):
            self._read(ids, tap)
        return {name: value.float().cpu() for name, value in tap.activations.items()}

    def _read(self, ids: Tensor, tap: Tap) -> None:
        run = getattr(self.model, "hidden", self.model.logits)  # without (T, V) logits if possible
        run(ids, tap=tap)

    @property
    def prompt(self) -> list[int]:
        """What continuations start from: all of a longer text, half of a complete record."""
        if self.continues:
            return list(self.ids)
        first = int(self.ids[0] == self.tokenizer.start)
        return list(self.ids[: max(1, first + (len(self.ids) - first) // 2)])

    def search(self, width: int, steps: int) -> tuple[list[Node], Generated | None]:
        """Run a beam search from the prompt; return all candidates and the best sequence."""
        trace = Trace()
        (results,) = self._generate([self.prompt], Beam(width=width, trace=trace), max_new=steps)
        return trace.trees[0], results[0] if results else None

    def samples(self, count: int, most: int, seed: int = 0) -> list[Generated]:
        """Sample continuations of the prompt at temperature 1, of at most `most` tokens."""
        prompts = [self.prompt] * count
        return [one for (one,) in self._generate(prompts, Sample(seed=seed), max_new=most)]

    def _generate(
        self, prompts: list[list[int]], strategy: Strategy, *, max_new: int
    ) -> list[list[Generated]]:
        config: Any = self.model.config
        # Only a model with positions has a limited context; the others carry a state.
        limited = getattr(config, "positions", None) is not None
        return generate(
            self.model,
            prompts,
            strategy,
            max_new=max_new,
            end=self.tokenizer.end,
            pad=self.tokenizer.pad,
            banned=sorted(self.banned),
            constraint=self.constrain,
            context=config.max_len if limited else None,
        )


@dataclass(frozen=True, eq=False)
class PairTrace(ForwardTrace):
    """What a seq2seq model computes for `source` (ids ending in `<E>`, or patches) and a target,
    `ids`. Activations include those of the encoder. `output` is what a target is: a translation or
    a caption.
    """

    model: ConditionedLM
    source: Sequence[int] | NDArray[Any] = field(kw_only=True)
    source_tokenizer: Tokenizer = field(kw_only=True)
    translator: Seq2SeqModel = field(kw_only=True)
    output: str = field(default="translation", kw_only=True)

    @classmethod
    def of(
        cls, translator: Seq2SeqModel, source: Sequence[int] | NDArray[Any], **rest: Any
    ) -> PairTrace:
        """Condition a translator on this source."""
        with evaluating(translator):
            model = translator.condition(as_inputs(source, device_of(translator)))
        return cls(model=model, source=source, translator=translator, **rest)

    @property
    def inputs(self) -> Inputs:
        """The source as the model reads it."""
        return as_inputs(self.source, device_of(self.model))

    @property
    def sources(self) -> list[str]:
        """The tokens of the source, as displayed; none if they are not text."""
        if np.ndim(self.source) > 1:
            return []
        return [self.source_tokenizer.text(int(i)) for i in self.source]

    @property
    def prompt(self) -> list[int]:
        return [self.tokenizer.start]

    def _read(self, ids: Tensor, tap: Tap) -> None:
        self.model.set_source(self.inputs, tap=tap)
        super()._read(ids, tap)


def as_inputs(ids: Sequence[int] | NDArray[Any], device: torch.device) -> Inputs:
    row = torch.from_numpy(np.array(ids, np.int64))[None].to(device)  # (1, S) or (1, S, V)
    return Inputs(row, torch.ones(row.shape[:2], dtype=torch.int64, device=device))


MOST_WEIGHTS = 1 << 23  # attention weights on one page: 8 MB at one byte each
SCORES = {"scaled_dot": "q · k / √d", "dot": "q · k"}  # as formulas; others are "score"
MOST_SCORED = 24  # tokens up to which the scores are drawn too
MOST_MASKED = 16  # positions of the mask that are drawn
MOST_DISTANCES = 64  # of filters that are drawn
MOST_UNITS = 64  # of a recurrent state


View = Callable[[Page, Any, Any], None]  # adds sections about (a trace or context, its model)
ViewT = TypeVar("ViewT", bound=View)
VIEW_MODULES = ("counting_views", "classifier_views", "prediction_views")  # register theirs
VIEWS: dict[type, View] = {}
EVIDENCE: dict[type, View] = {}


def register_view(*model_classes: type) -> Callable[[ViewT], ViewT]:
    """Register what shows the inside of a model, for its class and subclasses."""
    return _register(VIEWS, model_classes)


def register_evidence(*model_classes: type) -> Callable[[ViewT], ViewT]:
    """Register what shows on which parts of an input the prediction of a model rests."""
    return _register(EVIDENCE, model_classes)


def _register(views: dict[type, View], model_classes: Sequence[type]) -> Callable[[ViewT], ViewT]:
    def register(view: ViewT) -> ViewT:
        views.update(dict.fromkeys(model_classes, view))
        return view

    return register


def add_inside(page: Page, subject: Any) -> None:
    """Add the views registered for the class of `subject.model`, then those of its bases."""
    _add_views(page, subject, VIEWS)


def add_evidence(page: Page, subject: Any) -> None:
    _add_views(page, subject, EVIDENCE)


def _add_views(page: Page, subject: Any, views: Mapping[type, View]) -> None:
    for name in VIEW_MODULES:
        import_module(f"regard.look.{name}")
    for model_class in type(subject.model).__mro__:
        if model_class in views:
            views[model_class](page, subject, subject.model)


@register_view(Decoder)
def add_attention(
    page: Page, trace: ForwardTrace, model: Decoder, title: str = "Attention"
) -> None:
    """Draw every head of every layer, the mask, and how far back heads look."""
    add_filters(page, trace, model)
    n_attending = sum(mixer.has_weights for mixer in model.config.mixer_classes)
    if not n_attending:
        return
    heads = n_attending * model.config.n_heads
    first = min(len(trace.ids), max(2, math.isqrt(MOST_WEIGHTS // heads)))
    tokens = trace.tokens[:first]
    activations = trace.activations(*attention_names("block.*.attention", first), first=first)
    cut = ""
    if first < len(trace.ids):
        cut = (
            f" Only the first {first:,} of {len(trace.ids):,} tokens are drawn, to keep the page "
            "small; they do not depend on later tokens."
        )
    page.section(
        title,
        "At each token, each head attends to the tokens before it and averages their values; a "
        "row holds the attention weights of one token and sums to 1. Choose a small map to see "
        f"that head large, as a map or as arcs.{explain_scores(activations)}{cut}",
    )
    page.add(attention_maps(activations, tokens, tokens, model.config.score, title=title))
    add_reach(page, model, activations, tokens)


def add_filters(page: Page, trace: ForwardTrace, model: Decoder) -> None:
    """Draw how far back the long filters of Hyena layers reach."""
    mixers: list[tuple[int, Any]] = [(i, block.mixer) for i, block in enumerate(model.blocks)]
    layers = [(i, mixer) for i, mixer in mixers if hasattr(mixer, "filters")]
    if not layers:
        return
    length = max(2, min(len(trace.ids), MOST_DISTANCES))
    with torch.no_grad():
        sizes = [mixer.filters(length).square().mean(0).sqrt() for _, mixer in layers]  # (T,) each
    page.section(
        "Long filters",
        "A Hyena layer has no attention: it multiplies earlier tokens by a filter that depends on "
        "the distance alone, and gates computed from the tokens scale the result. The map shows "
        "the size of the filters over all channels of a layer; distance 0 is the token itself.",
    )
    rows, columns = [f"layer {i + 1}" for i, _ in layers], [str(n) for n in range(length)]
    title, unit = "Size of the filters at each distance", "root mean square of the filters"
    page.add(Heatmap(torch.stack(sizes).numpy(), rows, columns, title, unit=unit))


def attention_names(part: str, size: int) -> list[str]:
    """Return the names of attention weights and, for few tokens, of their scores."""
    return [f"{part}.{kind}" for kind in ("weights", "scores")[: 1 + (size <= MOST_SCORED)]]


def stack_layers(activations: Mapping[str, Tensor], what: str = "weights") -> Tensor:
    """Return (L, H, T, S): the weights or scores of all layers, for the first row of a batch."""
    return torch.stack([x[0] for name, x in activations.items() if name.endswith(f".{what}")])


def layer_names(activations: Mapping[str, Tensor]) -> list[str]:
    """Return the names of the layers that have attention weights, numbered from 1."""
    names = (name for name in activations if name.endswith(".weights"))
    matches = (re.search(r"block[.](\d+)[.]", name) for name in names)
    return [f"layer {int(match[1]) + 1}" for match in matches if match is not None]


def explain_scores(activations: Mapping[str, Tensor]) -> str:
    """Return a sentence about the scores, where they are drawn."""
    if not any(name.endswith(".scores") for name in activations):
        return ""
    return (
        " The first map holds the scores: how well the query of the row matches the key of the "
        "column, hatched where masked; the softmax of each row gives the weights."
    )


def attention_maps(
    activations: Mapping[str, Tensor],
    tokens: Sequence[str],
    sources: Sequence[str],
    score: str,
    *,
    title: str,
    chosen: tuple[int, int] = (0, 0),
) -> AttentionMaps:
    """Draw the heads of these activations; only the first rows where there are too many."""
    weights = stack_layers(activations)
    rows = max(1, min(len(tokens), MOST_WEIGHTS // (weights[:, :, 0].numel())))
    scores = None
    if explain_scores(activations):
        scores = stack_layers(activations, "scores")[:, :, :rows].numpy()
    part = f", the first {rows:,} of {len(tokens):,} rows" if rows < len(tokens) else ""
    return AttentionMaps(
        weights[:, :, :rows].numpy(),
        tokens[:rows],
        sources,
        layer_names(activations),
        scores=scores,
        score_name=SCORES.get(score, "score"),
        title=title + part,
        chosen=chosen,
    )


def add_encoder_attention(
    page: Page, activations: Mapping[str, Tensor], tokens: Sequence[str], score: str
) -> None:
    """Draw every head of an encoder, in which all tokens attend to all."""
    if not activations or len(tokens) ** 2 > MOST_WEIGHTS:
        return
    page.section(
        "Attention",
        "Every token attends to all tokens, earlier and later ones; a row holds the attention "
        "weights of one token and sums to 1. Choose a small map to see that head large, as a map "
        f"or as arcs.{explain_scores(activations)} Attention shows what a head reads, not how the "
        "model uses it.",
    )
    page.add(attention_maps(activations, tokens, tokens, score, title="Attention"))


@register_view(ConditionedDecoder)
def add_self_attention(page: Page, trace: PairTrace, model: ConditionedDecoder) -> None:
    """Draw the self-attention of decoder and encoder."""
    add_attention(page, trace, model.decoder, f"Attention within the {trace.output}")
    sources, title = trace.sources, "Attention within the source"
    if not sources:
        return
    activations = trace.activations(*attention_names("encoder.block.*.attention", len(sources)))
    page.section(
        title,
        "The encoder reads all of the source at once: every token attends to all tokens, earlier "
        "and later ones.",
    )
    page.add(attention_maps(activations, sources, sources, model.config.score, title=title))


def add_reach(
    page: Page, model: Decoder, activations: Mapping[str, Tensor], tokens: list[str]
) -> None:
    """Draw the mask, and how far back the heads look."""
    window, weights = model.config.window, stack_layers(activations)
    shown = min(len(tokens), max(MOST_MASKED, window + MOST_MASKED // 2))
    mask = model.mask(windowed=bool(window))
    assert mask is not None
    allowed = mask.tensor(1, shown, shown, torch.device("cpu"))[0, 0]  # (T, S)
    every = all(mixer.uses_window for mixer in model.config.mixer_classes)
    only = "" if every else ", in layers with a window,"
    limit = f" and{only} to at most {window - 1:,} positions back" if window else ""
    page.section(
        "Mask and reach",
        f"A token may attend to itself and to earlier tokens{limit}, never to later ones: else "
        "the model could read the token that it has to predict. Within that, some heads attend to "
        "close tokens and others to distant ones.",
    )
    part = f", the first {shown} tokens" if shown < len(tokens) else ""
    heads, title = [f"head {i + 1}" for i in range(weights.size(1))], "Mean distance of each head"
    distances = mean_distances(weights).numpy()
    page.add(
        MaskMap(allowed.numpy(), tokens[:shown], title=f"Attention mask{part}"),
        Heatmap(distances, layer_names(activations), heads, title, unit="tokens"),
    )


def mean_distances(weights: Tensor) -> Tensor:
    """Return (L, H): the mean distance from a query to its keys under causal (L, H, T, S)."""
    at = torch.arange(weights.size(-1))
    distances = (at[:, None] - at).clamp_min(0)  # (T, S)
    return (weights * distances).sum(dim=-1).mean(dim=-1)


@register_view(RecurrentModel, ConditionedRecurrent)
def add_recurrence(page: Page, trace: ForwardTrace, model: LanguageModel) -> None:
    """Draw the hidden state of the last layer, and how much each token changes it."""
    states = trace.activations("recurrent.output")["recurrent.output"][0]  # (T, D)
    length, width = states.shape
    units = min(width, MOST_UNITS)
    names = [f"unit {i + 1}" for i in range(units)]
    values = states[:, :units].numpy()
    short = length <= units
    page.section(
        "Hidden state",
        "A recurrent network stores all its memory in one vector, which every token changes. "
        f"{'Each row' if short else 'Each column'} is that vector after a token"
        f"{f', its first {units} of {width:,} units' if units < width else ''}; units that "
        "keep their colour remember, units that flicker follow the text.",
    )
    shown = (values, trace.tokens, names) if short else (values.T, names, trace.tokens)
    page.add(Heatmap(*shown, title="output of the last layer", scale="diverging"))
    before = torch.cat([torch.zeros(1, width), states[:-1]])  # the state starts at zero
    change = (states - before).norm(dim=1).tolist()
    series = [("change", list(range(1, length + 1)), change)]
    title = "How much each token changes the state"
    page.add(Lines(series, "token read", "length of the change", title))
