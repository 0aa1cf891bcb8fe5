"""The decoding engine: ragged prompts in one batch, one step per token, whatever the strategy.

A strategy (`Greedy`, `Sample`, `Beam`) chooses the next token; padding, banned tokens, forbidden
transitions and the context limit are handled here. Several threads may decode with one model: a
batch borrows memory from a pool and returns it at the end, so that none is ever shared.

Tokens stay on the device. On a CPU the host reads them at every step; elsewhere it reads those of
earlier steps every few steps, so that an accelerator never waits for it.

`translate` decodes sentences of similar length together, each as if it were alone. Sources are
padded to a multiple of `BLOCK`, and only those of one width share a batch: the result of one, its
length limit included, does not depend on the others, and a recorded step serves batch after batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.decoding.cpu_replay import ReplayedStep, replay_pays
from regard.decoding.cuda_graphs import CAPTURE_LOCK, GraphStep
from regard.errors import UserError
from regard.layers.cache import DecodeState
from regard.layers.embeddings import Inputs
from regard.models.language_model import Constrain, LanguageModel
from regard.models.seq2seq import ConditionedLM, Seq2SeqModel

REPLAY_AFTER = 1  # steps after which a step is recorded on a CPU
MIN_GRAPH_STEPS = 16  # steps that must remain for capturing a CUDA graph, some 50 ms, to pay
CAPACITY_MULTIPLE = 128  # of capacities on a GPU, so that shapes are few
MAX_IDLE = 16  # items that a pool keeps for later calls
CHECK_EVERY = 8  # steps that an accelerator runs ahead of the host
DIVERGED = (
    "the model's logits are not finite numbers: its weights have diverged or overflowed; train it "
    "again with a lower train.lr, or decode in fp32"
)

Item = TypeVar("Item")
Pick = Callable[[Tensor, int], tuple[Tensor, Tensor]]


class RecordedStep(Protocol):
    """A recorded decoding step: appends a token (B,) to each row and returns logits (B, V)."""

    ids: Tensor  # (B, 1)

    def __call__(self, ids: Tensor) -> Tensor: ...


def device_of(model: nn.Module) -> torch.device:
    """Return the device of the model's tensors, the CPU for a model without any."""
    for tensor in (*model.parameters(), *model.buffers()):
        return tensor.device
    return torch.device("cpu")


@contextmanager
def gpu_lock(device: torch.device) -> Iterator[None]:
    """Let one thread at a time compute on a GPU: CUDA graphs are captured, replayed and destroyed
    while no other thread uses it. A thread may nest calls. On a CPU nothing is locked.
    """
    with CAPTURE_LOCK if device.type == "cuda" else nullcontext():
        yield


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Disable dropout and gradients, and restore training mode afterwards; locks the GPU."""
    training = model.training
    if training:
        model.eval()
    try:
        with torch.inference_mode(), gpu_lock(device_of(model)):
            yield
    finally:
        if training:
            model.train()


class Pool(Generic[Item]):
    """Items that one caller uses at a time: as many as there were callers at once."""

    def __init__(self, make: Callable[[], Item]) -> None:
        self.make = make
        self.idle: list[Item] = []
        self.lock = Lock()

    @contextmanager
    def borrow(self, fits: Callable[[Item], bool]) -> Iterator[Item]:
        """Yield an item for the caller alone: one that `fits`, else any idle one, else a new one.

        The item of a call that fails is dropped.
        """
        with self.lock:
            candidates = [item for item in self.idle if fits(item)] or self.idle[:1]
            if candidates:
                self.idle.remove(candidates[-1])
        item = candidates[-1] if candidates else self.make()
        yield item
        with self.lock:
            if len(self.idle) < MAX_IDLE:
                self.idle.append(item)


class DecodeSession:
    """The memory for decoding with one model, in any number of threads.

    The recorded step of a batch serves the next batch of the same shape, so that a thousand batches
    cost one recording.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.model, self.device = model, device_of(model)
        self.slots = Pool(lambda: Slot(model, self.device))


def pad_capacity(capacity: int, device: torch.device) -> int:
    """Round the capacity of a state up on a GPU, to few different and aligned shapes."""
    multiple = CAPACITY_MULTIPLE
    return -(-capacity // multiple) * multiple if device.type == "cuda" else capacity


class Slot:
    """The memory of one batch at a time: its state, and the step that was recorded for it."""

    def __init__(self, model: LanguageModel, device: torch.device) -> None:
        self.model, self.device = model, device
        self.state: DecodeState | None = None
        self.step: RecordedStep | None = None
        self.search: Any = None  # the captured search of beams

    @property
    def shape(self) -> tuple[int, int] | None:
        """The rows and capacity of a state that can be used again."""
        recorded = self.step is not None or self.search is not None
        return self.state.shape if recorded and self.state is not None else None

    def init_state(self, rows: int, capacity: int) -> DecodeState:
        capacity = pad_capacity(capacity, self.device)
        if self.state is not None and self.shape == (rows, capacity):
            self.state.reset()
            return self.state
        self.state, self.step, self.search = self.model.init_state(rows, capacity), None, None
        return self.state

    def graph_pays(self, remaining: int) -> bool:
        """Return whether so many steps are worth capturing a CUDA graph."""
        on_gpu = self.device.type == "cuda"
        return on_gpu and self.model.static_shapes and remaining >= MIN_GRAPH_STEPS

    def record_step(self, taken: int, remaining: int) -> RecordedStep | None:
        """Return the recorded step of the state, where recording pays after `taken` steps with
        `remaining` to come.
        """
        state = self.state
        assert state is not None
        if self.step is not None and len(self.step.ids) == state.batch:
            state.fix(self.device)
            return self.step
        self.step = None  # one with other rows, recorded without beams
        if self.graph_pays(remaining):
            self.step = GraphStep(self.model, state, self.device)
        elif taken == REPLAY_AFTER and replay_pays(self.model, state, remaining):
            self.step = ReplayedStep(self.model, state)
        return self.step


@dataclass(frozen=True, kw_only=True)
class Generated:
    """One decoded sequence.

    `ids` are the new tokens, with the end token if it was produced; `log_probs` the natural
    log-probability of each at temperature 1, after banned tokens and forbidden transitions were
    excluded; `score` ranks sequences: the sum of `log_probs`, for beams divided by
    length ** length_penalty. A `finished` sequence ended with the end token; one at a `dead_end`
    stopped because every next token was excluded.
    """

    ids: list[int]
    log_probs: list[float]
    score: float
    finished: bool
    dead_end: bool = False


@dataclass(frozen=True, kw_only=True)
class Request:
    """The settings of `generate` that all prompts share."""

    max_new: int
    end: int
    pad: int = 0
    banned: tuple[int, ...] = ()
    constraint: Constrain | None = None
    context: int | None = None
    on_token: Callable[[int, int], None] | None = None

    def __post_init__(self) -> None:
        if self.max_new < 1:
            raise ValueError(f"max_new must be at least 1, got {self.max_new}")
        if self.context is not None and self.context < 1:
            raise ValueError(f"context must be at least 1 or None, got {self.context}")

    def check_ids(self, vocab_size: int) -> None:
        """Raise ValueError for an end, pad or banned id outside the vocabulary."""
        named = [("end", self.end), ("pad", self.pad), *(("banned", i) for i in self.banned)]
        for name, value in named:
            if not 0 <= value < vocab_size:
                raise ValueError(f"{name} must be an id from 0 to {vocab_size - 1}, got {value}")


class Strategy(Protocol):
    """Chooses tokens: turns a batch of prompts into sequences."""

    @property
    def rows(self) -> int:
        """The rows of a model's batch that one prompt takes."""

    def decode(self, batch: DecodeBatch) -> list[list[Generated]]:
        """Return the sequences of each prompt of the batch, best first."""


class DecodeBatch:
    """Rows decoded together: steps them, excludes tokens, restarts at the context limit.

    Every row takes every step, also after its end, so that lengths are known without asking the
    device. `numbers` are the indices of the prompts in the caller's list.
    """

    slot: Slot
    state: DecodeState

    def __init__(
        self,
        model: LanguageModel,
        prompts: Sequence[Sequence[int]],
        numbers: Sequence[int],
        request: Request,
        session: DecodeSession,
    ) -> None:
        self.model, self.session, self.device = model, session, session.device
        self.request, self.numbers = request, list(numbers)
        immediate = self.device.type == "cpu" or request.on_token is not None
        self.every = 1 if immediate else CHECK_EVERY  # steps between two reads of the host,
        self.delay = 0 if immediate else 1  # which leaves so many of the newest reads in flight
        self.visible = [len(prompt) for prompt in prompts]  # tokens of each row at the last start
        self.taken = 0  # steps since then
        self.column = max(self.visible)  # one past the newest token in `history`
        self.limit = math.inf if request.context is None else request.context
        longest = self.column + request.max_new - 1  # the last new token is never read
        self.capacity = int(min(longest, self.limit))
        self.restarts = longest > self.limit
        # Prompts end at the same column, so that the new tokens of all rows share theirs.
        history = torch.full((len(prompts), self.column + request.max_new), request.pad)
        for row, prompt in enumerate(prompts):
            history[row, self.column - len(prompt) : self.column] = torch.as_tensor(prompt)
        self.history = history.to(self.device)  # (B, P + max_new)
        self.banned: Tensor | None = None
        if request.banned:
            self.banned = torch.tensor(request.banned, device=self.device)
        self.step: RecordedStep | None = None

    def decode(self, strategy: Strategy) -> list[list[Generated]]:
        """Run a strategy in memory of the session, preferably one that has decoded this shape."""
        shape = len(self.visible), pad_capacity(self.capacity, self.device)
        with self.session.slots.borrow(lambda slot: slot.shape == shape) as self.slot:
            return strategy.decode(self)

    def read_prompts(self) -> Tensor:
        """Return the logits (B, V) of the first new token."""
        return self._exclude(self._start(), self.history[:, self.column - 1])

    def extend(self, ids: Tensor) -> Tensor:
        """Append one token (B,) to each row; return the logits (B, V) of the next."""
        if self.restarts:
            self.history[:, self.column] = ids
        self.column += 1
        self.taken += 1
        too_long = max(self.visible) + self.taken > self.limit
        return self._exclude(self._start() if too_long else self._step(ids), ids)

    @property
    def graph_pays(self) -> bool:
        """Whether a step with the search of a strategy is worth capturing as one CUDA graph."""
        return not self.restarts and self.slot.graph_pays(self.request.max_new - 1)

    def plain_step(self, ids: Tensor) -> Tensor:
        """Do what `extend` does within the context, without a recorded step: to be captured."""
        logits = self.model.step(ids[:, None], None, self.state)  # (B, V)
        return self._exclude(logits, ids)

    def _step(self, ids: Tensor) -> Tensor:
        if self.step is None:
            remaining = min(self.history.size(1), self.state.capacity) - self.column
            self.step = self.slot.record_step(self.taken, remaining)
        if self.step is not None:
            return self.step(ids)
        return self.model.step(ids[:, None], None, self.state)  # (B, V)

    def expand(self, width: int) -> None:
        if width > 1:
            self.state.expand(width)
            if self.restarts:
                self.history = self.history.repeat_interleave(width, 0)
            self.visible = [length for length in self.visible for _ in range(width)]

    def select(self, parents: Tensor) -> None:
        """Make row b a copy of row parents[b]; both must have the same prompt."""
        self.state.select(parents)
        if self.restarts:
            self.history = self.history[parents]

    def _start(self) -> Tensor:
        """Read the tokens that each row may still see into an empty state."""
        lengths = [length + self.taken for length in self.visible]
        half = max(1, int(self.limit) // 2) if self.restarts else 0
        self.visible = [half if length > self.limit else length for length in lengths]
        self.taken = 0
        longest = max(self.visible)
        counts = torch.tensor(self.visible, device=self.device)  # (B,)
        columns = (self.column - counts)[:, None] + torch.arange(longest, device=self.device)
        # Past the end of a row comes its last token, which `step` ignores as padding.
        ids = self.history.gather(1, columns.clamp(max=self.column - 1))  # (B, T)
        even = min(self.visible) == longest
        self.state, self.step = self.slot.init_state(len(self.visible), self.capacity), None
        return self.model.step(ids, None if even else counts, self.state)

    def _exclude(self, logits: Tensor, previous: Tensor) -> Tensor:
        """Return the logits, in single precision at least, with -inf at excluded tokens."""
        if logits.dtype in (torch.bfloat16, torch.float16):
            logits = logits.float()
        if self.banned is not None:
            logits = logits.index_fill(1, self.banned, -math.inf)
        if self.request.constraint is not None:
            logits = self.request.constraint(logits, previous)
        return logits


def check_prompts(prompts: Sequence[Sequence[int]], vocab_size: int) -> None:
    """Raise ValueError for a prompt that is empty or has an id outside the vocabulary."""
    for number, prompt in enumerate(prompts):
        if len(prompt) == 0:
            raise ValueError(f"prompts[{number}] is empty; a prompt has at least one id")
        for id in (min(prompt), max(prompt)):
            if not 0 <= id < vocab_size:
                raise ValueError(f"prompts[{number}] holds {id}; ids go from 0 to {vocab_size - 1}")


def group_by_length(
    prompts: Sequence[Sequence[int]], batch_size: int, rows: int
) -> list[list[int]]:
    """Return batches of prompt numbers, of similar lengths for little padding; each prompt takes
    `rows` rows.
    """
    order = sorted(range(len(prompts)), key=lambda number: len(prompts[number]))
    count = max(1, batch_size // rows)
    return [order[first : first + count] for first in range(0, len(order), count)]


def generate(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    strategy: Strategy,
    *,
    max_new: int,
    end: int,
    pad: int = 0,
    banned: Sequence[int] = (),
    constraint: Constrain | None = None,
    context: int | None = None,
    on_token: Callable[[int, int], None] | None = None,
    batch_size: int = 64,
    session: DecodeSession | None = None,
    keys: Sequence[int] | None = None,
) -> list[list[Generated]]:
    """Continue each prompt by at most `max_new` tokens or up to `end`: a list per prompt.

    A prompt is at least one id, normally `<S>` and what follows it. `Greedy` and `Sample` give one
    sequence per prompt, `Beam` its n best. The result of a prompt depends neither on the others nor
    on `batch_size`, the number of rows decoded together. `banned` ids are never produced, and
    `constraint` (a `ForbiddenTransitions`) excludes tokens by the one before; a row without any
    possible token ends with `dead_end`.

    `context` is the number of positions the model can see. A row that would exceed it continues
    from its last context // 2 tokens, read again; so does a prompt that is too long.

    `on_token(number of the prompt, id)` is called with each token as soon as it is known, which
    makes the host wait for every one; beams cannot be streamed. A `session` keeps recorded steps
    for later calls, also from other threads. `keys` number the prompts for samples, traces and
    `on_token`, where they are some of many.
    """
    request = Request(
        max_new=max_new,
        end=end,
        pad=pad,
        banned=tuple(banned),
        constraint=constraint,
        context=context,
        on_token=on_token,
    )
    request.check_ids(model.vocab_size)
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    check_prompts(prompts, model.vocab_size)
    results: list[list[Generated]] = [[] for _ in prompts]
    keys = range(len(prompts)) if keys is None else keys
    with evaluating(model):
        session = session or DecodeSession(model)
        for numbers in group_by_length(prompts, batch_size, strategy.rows):
            rows, row_keys = [prompts[n] for n in numbers], [keys[n] for n in numbers]
            batch = DecodeBatch(model, rows, row_keys, request, session)
            for number, sequences in zip(numbers, batch.decode(strategy), strict=True):
                results[number] = sequences
    return results


@dataclass(frozen=True, eq=False)
class StepOutput:
    """The choices of some steps, on their way to the host."""

    ids: Tensor  # (steps, B)
    scores: Tensor  # (steps, B)
    logits: tuple[Tensor, ...]  # (B, V) each, on the device
    arrived: torch.cuda.Event | None


def send_to_host(choices: list[tuple[Tensor, Tensor, Tensor]]) -> StepOutput:
    """Copy ids (B,) and scores (B,) of some steps to the host without waiting; the logits (B, V)
    they were chosen from stay.
    """
    step_ids, step_scores, logits = zip(*choices, strict=True)
    if len(choices) == 1:  # no copy
        ids, scores = step_ids[0][None], step_scores[0][None]
    else:
        ids, scores = torch.stack(step_ids), torch.stack(step_scores)
    if not ids.is_cuda:
        return StepOutput(ids, scores, logits, None)
    ids, scores = ids.to("cpu", non_blocking=True), scores.to("cpu", non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record()
    return StepOutput(ids, scores, logits, arrived)


class HostRecord:
    """The tokens of one sequence per row, on the host."""

    def __init__(self, batch: DecodeBatch) -> None:
        rows = range(len(batch.numbers))
        self.batch = batch
        self.ids: list[list[int]] = [[] for _ in rows]
        self.log_probs: list[list[float]] = [[] for _ in rows]
        self.live = list(rows)
        self.dead: set[int] = set()

    def append(self, output: StepOutput) -> None:
        if output.arrived is not None:
            output.arrived.synchronize()
        for step in zip(output.ids.tolist(), output.scores.tolist(), output.logits, strict=True):
            self._append_step(*step)

    def _append_step(self, ids: list[int], scores: list[float], logits: Tensor) -> None:
        request, ended = self.batch.request, set()
        for row in self.live:
            if not math.isfinite(scores[row]):
                if not bool((logits[row] == -math.inf).all()):  # no dead end
                    raise UserError(DIVERGED)
                self.dead.add(row)
                ended.add(row)
                continue
            self.ids[row].append(ids[row])
            self.log_probs[row].append(scores[row])
            if request.on_token is not None:
                request.on_token(self.batch.numbers[row], ids[row])
            if ids[row] == request.end:
                ended.add(row)
        if ended:
            self.live = [row for row in self.live if row not in ended]

    def results(self, *, log_probs: bool) -> list[list[Generated]]:
        sequences = []
        for row, ids in enumerate(self.ids):
            values = self.log_probs[row] if log_probs else []
            sequence = Generated(
                ids=ids,
                log_probs=values,
                score=sum(values),
                finished=bool(ids) and ids[-1] == self.batch.request.end,
                dead_end=row in self.dead,
            )
            sequences.append([sequence])
        return sequences


def decode_rows(batch: DecodeBatch, pick: Pick, *, log_probs: bool = True) -> list[list[Generated]]:
    """Decode one sequence per row; `pick(scores, step)` returns ids (B,) and their scores (B,).

    It gets (B, V) log-probabilities, or the logits where `log_probs` is False, which saves
    normalizing them. A row without any possible token has scores that are not finite, and ends.
    """
    record = HostRecord(batch)
    choices: list[tuple[Tensor, Tensor, Tensor]] = []
    in_flight: list[StepOutput] = []
    logits = batch.read_prompts()  # (B, V)
    for step in range(1, batch.request.max_new + 1):
        ids, scores = pick(logits.log_softmax(-1) if log_probs else logits, step - 1)
        choices.append((ids, scores, logits))
        last = step == batch.request.max_new
        if last or step % batch.every == 0:
            in_flight.append(send_to_host(choices))
            choices.clear()
            while len(in_flight) > (0 if last else batch.delay):
                record.append(in_flight.pop(0))
            if last or not record.live:
                break
        logits = batch.extend(ids)
    return record.results(log_probs=log_probs)


Array = NDArray[np.integer]

BLOCK = 8  # widths of sources are multiples of this
EXTRA = 8  # tokens added to a source's length when its target is limited
RATIO = 2.0  # limit of target tokens per source token, where the data give none


class ConditionedSession:
    """A model conditioned on sources of one shape, in memory that serves batch after batch."""

    conditioned: ConditionedLM
    session: DecodeSession

    def __init__(self, model: Seq2SeqModel) -> None:
        self.model = model
        self.shape: tuple[int, ...] = ()  # of the sources

    def set_source(self, source: Inputs) -> None:
        if self.shape == tuple(source.ids.shape):
            self.conditioned.set_source(source)
            return
        self.conditioned = self.model.condition(source)
        self.session, self.shape = DecodeSession(self.conditioned), tuple(source.ids.shape)


class TranslationSession:
    """The memory for translating with one model, in any number of threads; see DecodeSession."""

    def __init__(self, model: Seq2SeqModel) -> None:
        self.device = device_of(model)
        self.pool = Pool(lambda: ConditionedSession(model))

    @contextmanager
    def condition(self, source: Inputs) -> Iterator[tuple[ConditionedLM, DecodeSession]]:
        """Yield the language model of targets given these sources, and its session."""
        shape = tuple(source.ids.shape)
        with self.pool.borrow(lambda item: item.shape == shape) as item:
            item.set_source(source.to(self.device))
            yield item.conditioned, item.session


def translate(
    model: Seq2SeqModel,
    sources: Sequence[Sequence[int] | Array],
    strategy: Strategy,
    *,
    start: int,
    end: int,
    pad: int = 0,
    banned: Sequence[int] = (),
    constraint: Constrain | None = None,
    max_new: int = 0,
    ratio: float = RATIO,
    batch_size: int = 64,
    session: TranslationSession | None = None,
    keys: Sequence[int] | None = None,
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[list[Generated]]:
    """Decode the targets of sources: a list for each.

    A source is its ids with the end token, or (S, V) tokens of V numbers. `Greedy` and `Sample`
    give one sequence, `Beam` its n best. `max_new` limits their tokens (0: `ratio` times the
    source's length plus EXTRA); the model's max_len does, too. `batch_size` counts rows, beams
    included. `keys` number the sources for samples and traces. `prefixes` are the beginnings of
    the targets, which are decoded from there on.
    """
    results: list[list[Generated]] = [[] for _ in sources]
    keys = range(len(sources)) if keys is None else keys
    starts = [[start, *prefix] for prefix in prefixes or [()] * len(sources)]
    session = session or TranslationSession(model)
    with evaluating(model):
        for numbers, width in group_by_width(sources, max(1, batch_size // strategy.rows), starts):
            inputs = pad_sources([sources[number] for number in numbers], width, pad)
            limit = max_new or math.ceil(ratio * (width + EXTRA))
            written = len(starts[numbers[0]]) - 1  # that the prefixes take
            with session.condition(inputs) as (conditioned, decode_session):
                sequences = generate(
                    conditioned,
                    [starts[number] for number in numbers],
                    strategy,
                    max_new=min(limit, model.config.max_len - written),
                    end=end,
                    pad=pad,
                    banned=banned,
                    constraint=constraint,
                    batch_size=len(numbers) * strategy.rows,
                    session=decode_session,
                    keys=[keys[number] for number in numbers],
                )
            for number, n_best in zip(numbers, sequences, strict=True):
                results[number] = n_best
    return results


def pad_sources(sources: Sequence[Sequence[int] | Array], width: int, pad: int) -> Inputs:
    """Return a batch of sources, padded to a width."""
    rows = [torch.from_numpy(np.array(source)) for source in sources]
    ids = torch.full((len(rows), width, *rows[0].shape[1:]), pad, dtype=rows[0].dtype)
    segments = torch.zeros(len(rows), width, dtype=torch.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)], segments[i, : len(row)] = row, 1
    return Inputs(ids, segments)


def group_by_width(
    sources: Sequence[Sequence[int] | Array], count: int, starts: Sequence[Sequence[int]] = ()
) -> Iterator[tuple[list[int], int]]:
    """Yield the numbers of at most `count` sources of one width, and the width; widest first. Those
    whose targets have `starts` of different lengths are kept apart.
    """
    widths = [-(-max(1, len(source)) // BLOCK) * BLOCK for source in sources]
    lengths = [len(start) for start in starts] or [0] * len(widths)
    shapes = list(zip(widths, lengths, strict=True))
    for shape in sorted(set(shapes), reverse=True):
        numbers = [number for number, one in enumerate(shapes) if one == shape]
        for first in range(0, len(numbers), count):
            yield numbers[first : first + count], shape[0]
