"""What happens inside a model as it reads one input: what a page is about, the traces that it is
made from, the registries of views, and the views of attention, long filters and recurrent
states.

A trace works on any `LanguageModel`, through its interface and named activations. A view registered
for a model class draws what is special about it; `register_view` is for what a model has learned or
does (the inside of a page), `register_evidence` for what its prediction rests on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.batching import LabelledExamples
from regard.data.corpus import FOLDER, MANIFEST, reopen
from regard.data.shards import Shard
from regard.data.text_files import TextFiles
from regard.decoding import Beam, Generated, Node, Sample, Strategy, Trace, generate
from regard.decoding.engine import device_of, evaluating
from regard.errors import UserError
from regard.evaluation.classification import MultilabelReport
from regard.evaluation.head_scores import offsets
from regard.evaluation.regression import RegressionReport
from regard.evaluation.translation import HeadAlignment, measure_head_alignment
from regard.layers.embeddings import Inputs
from regard.layers.tap import Tap
from regard.look.page import AttentionMaps, Choices, Component, Heatmap, MaskMap, Page
from regard.look.records import Records
from regard.models.decoder import Decoder
from regard.models.encoder_decoder import ConditionedDecoder
from regard.models.language_model import Constrain, LanguageModel
from regard.models.seq2seq import ConditionedLM, Seq2SeqModel
from regard.models.supervised import SupervisedModel
from regard.pipelines import Pipeline
from regard.pipelines.predictor import Predictor
from regard.run import METADATA, Run
from regard.tokenizers import Tokenizer

Facts = list[tuple[str, object]]
Expected = list[tuple[str, float]]  # tokens and their probabilities, falling
TARGET_METRICS = (MultilabelReport.target_metric, RegressionReport.target_metric)
SHAPE = (
    ("n_encoder_layers", "encoder layers"),
    ("n_layers", "layers"),
    ("n_heads", "heads"),
    ("d_model", "width"),
    ("source_vocab", "source vocabulary"),
    ("n_words", "words"),
    ("window", "window"),
    ("negatives", "words drawn"),
)
ENOUGH_RECORDS = 50  # to show what a model does with many of them
METRICS = (  # and their digits
    ("bleu", "BLEU", 1),
    ("chrf", "chrF", 1),
    ("exact", "exact, %", 1),
    ("bits_per_symbol", "bits per symbol", 3),
    ("nats_per_token", "nats per masked token", 3),
    ("loss", "loss", 3),
    ("accuracy", "accuracy", 3),
    ("f1", "F1", 3),
    ("precision", "precision", 3),
    ("recall", "recall", 3),
    ("average_precision", "average precision", 3),
    ("f1_macro", "macro F1", 3),
    ("auroc", "AUROC", 3),
    ("auroc_mean", "mean AUROC of the labels", 3),
    ("rmse", "RMSE", 3),
    ("rmse_standardized_mean", "mean standardized RMSE of the targets", 3),
    ("r2", "R²", 3),
)


def find_file(text: str) -> Path | None:
    """Return the existing file that this text names, if any."""
    try:
        path = Path(text)
        return path if path.is_file() else None
    except OSError:  # longer than any path may be
        return None


def read_text(path: Path, *, running: bool, most: int) -> str:
    """Return the first record of a file, or the first `most` characters of running text."""
    if not running:
        source = TextFiles([path])
        if source.format == "text":  # a model of records reads lines
            source = TextFiles([path], format="lines")
        return next(chunk.texts[0] for chunk in source.records())
    source, text = TextFiles([path], format="text"), ""
    for piece in source.text():
        text += piece
        if len(text) >= most:
            break
    return text[:most]


def read_given(text: str, *, running: bool, most: int, log: Callable[[str], None]) -> str:
    """Return the text, or the beginning of the file that it names."""
    path = find_file(text) if text else None
    if path is None:
        return text
    log(f"reading the beginning of the file {path}")
    return read_text(path, running=running, most=most)


def require_held_out(pipeline: Pipeline, what: str) -> tuple[str, Shard]:
    """Return a split and its shard, or raise an error that says that nothing was given either."""
    try:
        return pipeline.held_out()
    except UserError as error:
        raise UserError(f"no {what} given, and {error}") from None


def quote(text: str) -> str:
    """Return the beginning of a text in quotation marks; of a sequence without spaces, less."""
    text = " ".join(text.split())
    most = 40 if " " in text else 24
    return f"“{text[:most]}{'…' if len(text) > most else ''}”"


def log_unknown(ids: Sequence[int], tokenizer: Tokenizer, log: Callable[[str], None]) -> None:
    """Log how many symbols are not in the vocabulary."""
    unknown = sum(i == tokenizer.unk for i in ids if tokenizer.unk != tokenizer.end)
    if unknown:
        log(f"{unknown:,} symbols are not in the vocabulary and are read as <unk>")


def truncate(ids: Sequence[int], max_len: int) -> tuple[list[int], str]:
    """Return the first max_len ids, and a note if these are not all."""
    if len(ids) <= max_len:
        return list(ids), ""
    note = f"only the first {max_len:,} of {len(ids):,} tokens are read: the model's max_len"
    return list(ids[:max_len]), note


def run_facts(run: Run, model: nn.Module, tokenizer: Tokenizer) -> Facts:
    """Return what the files of a run say: model, size, tokens and metrics."""
    name, vocab_size, config = run.description[1:4]
    parameters = sum(t.numel() for t in model.parameters())
    stored = sum(t.numel() for t in model.buffers())  # counting models have nothing else
    facts: Facts = [
        ("model", name),
        ("parameters", parameters) if parameters else ("numbers stored", stored),
        ("tokens", tokenizer.name),
        ("vocabulary", vocab_size),
    ]
    for key, label in SHAPE:
        if getattr(config, key, 0):
            stack = getattr(config, "main_stack", "") if key == "n_layers" else ""
            facts.append((f"{stack} {label}".strip(), getattr(config, key)))
    if hasattr(config, "max_len"):
        facts.append(("context", config.max_len))
    metadata = run.metadata
    for key, label in (("imported_from", "imported from"), ("steps", "steps")):
        if key in metadata:
            facts.append((label, metadata[key]))
    for split, words in (("valid", "validation"), ("test", "test")):
        metrics = metadata.get("metrics", {}).get(split, {})
        facts += metric_facts(metrics, words)
        for target, all_of_target in metrics.get("targets", {}).items():
            shown = {key: metric for key, metric in all_of_target.items() if key in TARGET_METRICS}
            facts += metric_facts(shown, f"{words}, {target}")
    return facts


def metric_facts(metrics: dict[str, Any], words: str) -> Facts:
    """Return stored metrics as facts; `words` names the split or the target."""
    facts: Facts = []
    for key, label, digits in METRICS:
        metric = metrics.get(key)
        if metric:
            of = f" of {metric['class']}" if metric.get("class") else ""
            facts.append((f"{label}{of}, {words}", format_metric(metric, digits)))
    return facts


def choose_sample(run: Run, held_out: tuple[str, Shard]) -> tuple[str, Shard]:
    """Return the name of a split and records of it to look at, though not to measure on: the
    held-out ones or, where these are few, those of training.
    """
    shard = held_out[1]
    if shard.records // shard.views >= ENOUGH_RECORDS:
        return held_out
    corpus = reopen(run.path)
    return ("train", corpus.train) if corpus.train.records > shard.records else held_out


def load_head_alignment(
    run: Run, model: Seq2SeqModel, log: Callable[[str], object]
) -> HeadAlignment | None:
    """Return how well the heads of a translator align, as stored with the run or measured now;
    None where it has no heads, or no data to measure on.
    """
    stored = run.metadata.get("alignment")
    if stored is not None:
        config = model.config
        heads = (config.n_layers, config.n_heads) if hasattr(config, "n_heads") else (1, 1)
        try:
            alignment = HeadAlignment.from_json(stored)
            if np.shape(alignment.per_head) != heads:
                raise ValueError(f"alignment must be of {heads[0]} layers of {heads[1]} heads")
            return alignment
        except ValueError as error:
            raise UserError(f"{run / METADATA} is damaged: {error}") from None
    if not (run / FOLDER / MANIFEST).exists():
        return None
    corpus = reopen(run.path)
    if corpus.train.source is None or corpus.train.vocab_size != model.vocab_size:
        return None
    notice = "the run does not store which head aligns: measuring it now"
    return measure_head_alignment(model, corpus.train, corpus.valid, on_start=lambda: log(notice))


def format_metric(metric: dict[str, Any], digits: int = 3) -> str:
    """Return a stored metric with its 95% interval."""
    if metric.get("undefined"):
        return f"undefined ({metric['undefined']})"
    if metric.get("value") is None:
        return f"infinite ({metric.get('impossible', 0):,} impossible)"
    value, low, high = (metric.get(key, metric["value"]) for key in ("value", "low", "high"))
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


@dataclass(frozen=True, eq=False)
class PredictionContext:
    """A predictor and one item, text or other; `sample`, a split and its shard, are records to look
    at, and `target` is an output to explain besides the predicted one.
    """

    predictor: Predictor
    item: Any = None
    sample: tuple[str, Shard] | None = None
    target: str = ""

    @property
    def model(self) -> SupervisedModel:
        model: SupervisedModel = self.predictor.model
        return model

    @property
    def tokenizer(self) -> Tokenizer:
        return self.predictor.tokenizer

    @property
    def outputs(self) -> list[str]:
        """The names of the model's outputs: classes, labels or values."""
        targets = self.predictor.targets
        return list(targets.names if targets.kind.per_column else targets.classes[0])

    @property
    def text(self) -> str:
        """The item if it is a text, else empty."""
        return self.item if isinstance(self.item, str) else ""

    @cached_property
    def records(self) -> Records | None:
        """The sample as records that a page shows."""
        return Records(self.predictor, *self.sample) if self.sample else None

    @cached_property
    def shard(self) -> Shard:
        """The item, in all its views."""
        return self.predictor.shard([self.item])

    @cached_property
    def examples(self) -> LabelledExamples:
        """The item without other views, cut to max_len."""
        return LabelledExamples(
            self.shard, self.tokenizer, int(self.model.config.max_len), first=True
        )

    @cached_property
    def source(self) -> Inputs:
        """The same as model inputs, one row."""
        (batch,) = self.examples.batches(1)
        assert batch.segments is not None
        return Inputs(batch.ids, batch.segments).to(device_of(self.model))

    @property
    def tokens(self) -> list[str]:
        """The tokens the model reads, as displayed; unknown words as they are in the text."""
        ids = self.source.ids[0].tolist()
        tokens, unknown = [self.tokenizer.text(i) for i in ids], self.tokenizer.unk
        before, _ = self.tokenizer.markers
        for start, end, first in self.tokenizer.word_spans(self.text) or ():
            if first + before < len(ids) and ids[first + before] == unknown:
                tokens[first + before] = f"⟨{self.text[start:end]}⟩"
        return tokens

    @property
    def reading_notes(self) -> list[str]:
        """What the model reads of the text: how many tokens, and what it does not know."""
        limit = self.predictor.context
        if not self.text or limit is None:
            return []
        count = len(self.tokenizer.content(self.shard.record(0)))
        most = limit.tokens
        notes = [f"{count:,} tokens; the model reads up to {most:,}."]
        if count > most:
            notes = [f"Only the first {most:,} of {count:,} tokens are read."]
        unknown = [token for token in self.tokens if token[:1] == "⟨" and token[-1:] == "⟩"]
        if unknown:
            words = ", ".join(dict.fromkeys(token[1:-1] for token in unknown))
            notes.append(f"Not in the vocabulary, in ⟨brackets⟩: {words}.")
        return notes

    @cached_property
    def probabilities(self) -> NDArray[np.float64]:
        """(O,) probabilities or values, or (T, O) of positions: the mean over all views."""
        predictions = self.predictor.predict_shard(self.shard)
        scores = self.model.output.probabilities(torch.from_numpy(predictions.scores)).numpy()
        return np.asarray(scores if predictions.positional else scores[0])

    @cached_property
    def explained(self) -> list[int]:
        """The outputs to explain: the prediction, and `target` or else the runner-up.

        For two classes the runner-up mirrors the prediction and is left out.
        """
        kind, names = self.predictor.targets.kind, self.outputs
        order = list(range(len(names)))
        if kind.categorical:
            order = [int(i) for i in np.argsort(-self.probabilities, kind="stable")]
        if self.target:
            other = names.index(self.target)
            return [order[0], *([other] if other != order[0] else [])]
        return order[:1] if kind.single and len(names) == 2 else order[:2]

    @property
    def unit(self) -> str:
        """The unit of scores."""
        return "logits" if self.predictor.targets.kind.categorical else ""

    @property
    def cut_note(self) -> str:
        """Which part of the text is explained, where that is not all of it."""
        cut = "Only the part of the text that the model reads is shown. "
        views = "Of several views, this is the text as given." if self.predictor.views else ""
        return (cut * bool(self.examples.cut) + views).strip()

    def activations(self, *patterns: str) -> dict[str, Tensor]:
        """Return the named activations, in the order of computation."""
        tap = Tap(patterns)
        with evaluating(self.model):
            self.model.predict(self.source, tap=tap)
        return {name: value.float().cpu() for name, value in tap.activations.items()}


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

    def tensor(self, ids: Sequence[int]) -> Tensor:
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
            inputs = self.tensor(self.ids[: len(targets)])
            with evaluating(self.model):
                nats = self.model.score(inputs, self.tensor(targets), constrain=self.constrain)
            bits = nats[0].double().cpu().numpy() / -math.log(2) + 0.0  # no -0
        if self.ids[0] != self.tokenizer.start:
            return [self.ids[0], *targets], np.concatenate([[math.nan], bits])
        return targets, bits

    def expected(self, most: int) -> tuple[list[Expected], list[int]]:
        """Return the `most` probable (token, probability) pairs at every position of `surprise` and
        of what follows the text if that is unknown; and the rank of every token, from 1.

        Nothing is expected in place of a first token that is predicted from nothing; its rank is 0.
        """
        with evaluating(self.model):
            ids = self.tensor(self.ids)
            logits = self.model.logits(ids)[0].float()  # (T, V)
            if self.constrain is not None:
                logits = self.constrain(logits, ids[0])
            p, tokens = logits.softmax(-1).topk(min(most, logits.size(-1)))
            targets = self.targets
            scores = logits[torch.arange(len(targets)), targets]
            ranks = (1 + (logits[: len(targets)] > scores[:, None]).sum(-1)).tolist()
        rows = [
            [(name, q) for name, q in zip(self.names(row), probabilities, strict=True) if q > 0]
            for row, probabilities in zip(tokens.tolist(), p.tolist(), strict=True)
        ]
        if self.ids[0] != self.tokenizer.start:
            return [[], *rows], [0, *ranks]
        return rows, ranks

    def next_logits(self) -> NDArray[np.float64]:
        """Return (V,) logits of the next token; −∞ for what is banned or forbidden."""
        with evaluating(self.model):
            state = self.model.init_state(1, len(self.ids))
            ids = self.tensor(self.ids)
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
        ids = self.tensor(self.ids[:first])
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
        return self.continuations(self.prompt, count, most, seed)

    def continuations(
        self, prompt: Sequence[int], count: int, most: int, seed: int = 0
    ) -> list[Generated]:
        """Sample continuations of any prompt."""
        prompts = [list(prompt)] * count
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
    a caption; `head`, the layer and the head of the cross-attention that aligns, if one does.
    """

    model: ConditionedLM
    source: Sequence[int] | NDArray[Any] = field(kw_only=True)
    source_tokenizer: Tokenizer = field(kw_only=True)
    translator: Seq2SeqModel = field(kw_only=True)
    output: str = field(default="translation", kw_only=True)
    head: tuple[int, int] | None = field(default=None, kw_only=True)

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
MOST_MASKED = 16  # positions of a windowed mask that are drawn
MOST_DISTANCES = 64  # of filters that are drawn


View = Callable[[Page, Any, Any], None]  # adds sections about (a trace or context, its model)
ViewT = TypeVar("ViewT", bound=View)
VIEW_MODULES = (
    "classical_views",
    "network_views",
    "prediction_page",
    "molecules",
    "forecast_page",
    "retrieval_page",
    "series_page",
    "head_views",
)  # register theirs
VIEWS: dict[type, list[View]] = {}
EVIDENCE: dict[type, list[View]] = {}


def register_view(*model_classes: type) -> Callable[[ViewT], ViewT]:
    """Register what shows the inside of a model, for its class and subclasses."""
    return _register(VIEWS, model_classes)


def register_evidence(*model_classes: type) -> Callable[[ViewT], ViewT]:
    """Register what shows on which parts of an input the prediction of a model rests."""
    return _register(EVIDENCE, model_classes)


def _register(
    views: dict[type, list[View]], model_classes: Sequence[type]
) -> Callable[[ViewT], ViewT]:
    def register(view: ViewT) -> ViewT:
        for model_class in model_classes:
            views.setdefault(model_class, []).append(view)
        return view

    return register


def add_inside(page: Page, subject: Any) -> None:
    """Add the views registered for the class of `subject.model`, then those of its bases."""
    _add_views(page, subject, VIEWS)


def add_evidence(page: Page, subject: Any) -> None:
    _add_views(page, subject, EVIDENCE)


def load_views() -> None:
    """Import the modules that register views and plots."""
    for name in VIEW_MODULES:
        import_module(f"regard.look.{name}")


def _add_views(page: Page, subject: Any, views: Mapping[type, Sequence[View]]) -> None:
    load_views()
    for model_class in type(subject.model).__mro__:
        for view in views.get(model_class, ()):
            view(page, subject, subject.model)


@register_view(Decoder)
def add_attention(page: Page, trace: ForwardTrace, model: Decoder) -> None:
    """Draw every head of every layer, how far back heads look, and the mask if it has a window."""
    add_filters(page, trace, model)
    attention = decoder_attention(trace, model, "Attention")
    if attention is None:
        return
    maps, note, activations = attention
    page.section(
        "Attention",
        "At each token, each head attends to the tokens before it and averages their values; a "
        "row holds the attention weights of one token and sums to 1. Choose a small map to see "
        f"that head large, as a map, over the text or as arcs.{note}",
    )
    page.add(maps)
    add_reach(page, model, activations, list(maps.tokens))


def decoder_attention(
    trace: ForwardTrace, model: Decoder, title: str
) -> tuple[AttentionMaps, str, dict[str, Tensor]] | None:
    """Return the heads of a decoder, what a note should say of them, and their activations; None
    where no layer attends.
    """
    n_attending = sum(mixer.has_weights for mixer in model.config.mixer_classes)
    if not n_attending:
        return None
    heads = n_attending * model.config.n_heads
    first = min(len(trace.ids), max(2, math.isqrt(MOST_WEIGHTS // heads)))
    tokens = trace.tokens[:first]
    activations = trace.activations(*attention_names("block.*.attention", first), first=first)
    note = explain_scores(activations)
    if first < len(trace.ids):
        note += (
            f" Only the first {first:,} of {len(trace.ids):,} tokens are drawn, to limit memory; "
            "they do not depend on later tokens."
        )
    maps = attention_maps(activations, tokens, tokens, model.config.score, title=title)
    return maps, note, activations


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
    """Draw the attention of encoder and decoder in one section, the cross-attention first."""
    views: list[tuple[str, Component]] = []
    notes = []
    if trace.sources and trace.targets:
        views.append(("to the source", cross_maps(trace, model)))
        notes.append(
            "To predict a token, the one that names the row, the decoder attends to the encoded "
            "source."
        )
    within = decoder_attention(trace, model.decoder, f"Attention within the {trace.output}")
    if within is not None:
        views.append((f"within the {trace.output}", within[0]))
        notes.append("Within the output it attends to the tokens before.")
    if trace.sources:
        activations = trace.activations(
            *attention_names("encoder.block.*.attention", len(trace.sources))
        )
        title, sources = "Attention within the source", trace.sources
        score = model.config.score
        maps = attention_maps(activations, sources, sources, score, title=title)
        views.append(("within the source", maps))
        notes.append("Within the source, every token attends to all, earlier and later ones.")
    if not views:
        return
    page.section(
        "Attention",
        " ".join([*notes, "Few heads align; others attend to the end, to neighbours or to nothing"])
        + " in particular.",
    )
    page.add(Choices(views))


def cross_maps(trace: PairTrace, model: ConditionedDecoder) -> AttentionMaps:
    """Return every head of the cross-attention, the one that aligns first."""
    rows, columns = trace.names(trace.targets), trace.sources
    names = attention_names("*cross", max(len(rows), len(columns)))
    activations = {name: x[:, :, : len(rows)] for name, x in trace.activations(*names).items()}
    title, chosen = "Attention to the source", trace.head or (0, 0)
    return attention_maps(
        activations, rows, columns, model.config.score, title=title, chosen=chosen
    )


def add_reach(
    page: Page, model: Decoder, activations: Mapping[str, Tensor], tokens: list[str]
) -> None:
    """Draw how far back the heads look, and the mask where it is more than a plain triangle."""
    window, weights = model.config.window, stack_layers(activations)
    components: list[Component] = []
    limit = ""
    if window:
        shown = min(len(tokens), max(MOST_MASKED, window + MOST_MASKED // 2))
        mask = model.mask(windowed=True)
        assert mask is not None
        allowed = mask.tensor(1, shown, shown, torch.device("cpu"))[0, 0]  # (T, S)
        every = all(mixer.uses_window for mixer in model.config.mixer_classes)
        only = "" if every else "In layers with a window, a"
        limit = f" {only or 'A'} token attends to at most {window - 1:,} positions back."
        part = f", the first {shown} tokens" if shown < len(tokens) else ""
        title = f"Attention mask{part}"
        components.append(MaskMap(allowed.numpy(), tokens[:shown], title=title))
    heads, title = [f"head {i + 1}" for i in range(weights.size(1))], "Mean distance of each head"
    distances = offsets(weights).mean(-1).numpy()  # (L, H)
    components.append(
        Heatmap(distances, layer_names(activations), heads, title, unit="tokens back")
    )
    name = "Mask and reach" if window else "How far back"
    page.section(
        name,
        "The mean distance from a token to those that a head attends to. Heads with short "
        f"distances read neighbours, heads with long ones distant tokens.{limit}",
    )
    page.add(*components)
