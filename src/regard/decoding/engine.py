"""The memory that batches are decoded in, and the recorded step beside it.

Several threads may decode with one model at the same time. Memory is never shared between them: a
batch borrows it from a pool and returns it at the end.

Decoding: ragged prompts in one batch, one `extend` per token, whatever the strategy.

A strategy (`Greedy`, `Sample`, `Beam`) says which token comes next; what all need is here, once:
padding, banned tokens and forbidden transitions, and the context limit.

One sequence per row, token by token, and the host's record of it.

Tokens stay on the device; the host looks at them every step on a CPU, where looking is free, and
every few steps elsewhere, at those of some steps ago, so that an accelerator never waits for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

from regard.decoding.cpu_replay import Replay, pays
from regard.decoding.cuda_graphs import CAPTURES, Graph
from regard.errors import UserError
from regard.layers.cache import DecodeState
from regard.models.language_model import Constrain, LanguageModel

RECORD_AT = 1  # steps after which a step is recorded on a CPU
STEPS = 16  # steps that must remain for capturing a CUDA graph, some 50 ms, to pay
BLOCK = 128  # capacities on a GPU are multiples of this: few different shapes
IDLE = 16  # items that a pool keeps for later calls, at most

Item = TypeVar("Item")


class Step(Protocol):
    """One decoding step, recorded: appends a token (B,) to each row and returns logits (B, V)."""

    ids: Tensor  # (B, 1)

    def __call__(self, ids: Tensor) -> Tensor: ...


def device_of(model: nn.Module) -> torch.device:
    """Where the model's tensors are; a model without any is on the CPU."""
    for tensor in (*model.parameters(), *model.buffers()):
        return tensor.device
    return torch.device("cpu")


@contextmanager
def computing(device: torch.device) -> Iterator[None]:
    """On a GPU, one thread at a time computes: CUDA graphs are captured, replayed and destroyed
    while no other thread works. Calls of a thread may be nested. On a CPU nobody waits.
    """
    with CAPTURES if device.type == "cuda" else nullcontext():
        yield


class Pool(Generic[Item]):
    """Items that one caller uses at a time. There are as many as there were callers at once."""

    def __init__(self, make: Callable[[], Item]) -> None:
        self.make = make
        self.idle: list[Item] = []
        self.lock = Lock()

    @contextmanager
    def borrow(self, fits: Callable[[Item], bool]) -> Iterator[Item]:
        """An item for the caller alone: one that `fits`, else any that is idle, else a new one.

        The item of a call that fails is dropped.
        """
        with self.lock:
            found = [item for item in self.idle if fits(item)] or self.idle[:1]
            if found:
                self.idle.remove(found[-1])
        item = found[-1] if found else self.make()
        yield item
        with self.lock:
            if len(self.idle) < IDLE:
                self.idle.append(item)


class DecodeSession:
    """The memory that batches are decoded in; any number of threads may use it at the same time.

    A slot whose step was recorded serves again for the next batch of the same shape, so that a
    thousand batches cost one recording.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.model, self.device = model, device_of(model)
        self.slots = Pool(lambda: Slot(model, self.device))

    @contextmanager
    def slot(self, rows: int, capacity: int) -> Iterator[Slot]:
        """A slot for one batch, if there is one a slot that has decoded this shape before."""
        shape = rows, padded(capacity, self.device)
        with self.slots.borrow(lambda slot: slot.shape == shape) as slot:
            yield slot


def padded(capacity: int, device: torch.device) -> int:
    """The capacity of a state: on a GPU rounded up, to few different shapes, and aligned ones."""
    return -(-capacity // BLOCK) * BLOCK if device.type == "cuda" else capacity


class Slot:
    """The memory of one batch at a time: its state, and the step that was recorded for it."""

    def __init__(self, model: LanguageModel, device: torch.device) -> None:
        self.model, self.device = model, device
        self.state: DecodeState | None = None
        self.step: Step | None = None
        self.search: Any = None  # what beam search keeps beside the state

    @property
    def shape(self) -> tuple[int, int] | None:
        """Rows and capacity of the state that can be used again, if there is one."""
        kept = self.step is not None or self.search is not None
        return self.state.shape if kept and self.state is not None else None

    def start(self, rows: int, capacity: int) -> DecodeState:
        """An empty state for `rows` of at most `capacity` tokens."""
        capacity = padded(capacity, self.device)
        if self.state is not None and self.shape == (rows, capacity):
            self.state.reset()
            return self.state
        self.state, self.step, self.search = self.model.start(rows, capacity), None, None
        return self.state

    def captures(self, left: int) -> bool:
        """Are `left` steps to come worth capturing as a CUDA graph?"""
        return self.device.type == "cuda" and self.model.static_shapes and left >= STEPS

    def recorded(self, grown: int, left: int) -> Step | None:
        """The step of the state as it now stands, if it is worth recording: `grown` were taken and
        `left` are to come.
        """
        state = self.state
        assert state is not None
        if self.step is not None and len(self.step.ids) == state.batch:
            state.fix(self.device)
            return self.step
        self.step = None  # if there is one, it was recorded with other rows: greedily, not in beams
        if self.captures(left):
            self.step = Graph(self.model, state, self.device)
        elif self.device.type == "cpu" and grown == RECORD_AT and pays(self.model, state, left):
            self.step = Replay(self.model, state)
        return self.step


CHECK_EVERY = 8  # steps that an accelerator runs ahead of the host


@dataclass(frozen=True, kw_only=True)
class Generated:
    """One decoded sequence.

    `ids` are the new tokens, with the end token if it was produced; `log_probs` the natural
    log-probability the model gave each of them at temperature 1, after banned tokens and forbidden
    transitions were ruled out; `score` is what the sequence was ranked by: the sum of `log_probs`,
    for beams divided by length ** length_penalty. `finished` tells whether it ended with the end
    token, `dead_end` whether it stopped because every next token was ruled out.
    """

    ids: list[int]
    log_probs: list[float]
    score: float
    finished: bool
    dead_end: bool = False


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked of every prompt alike; see `generate` for the meaning of each field."""

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
        """Refuse an end, pad or banned id that the vocabulary does not have."""
        named = [("end", self.end), ("pad", self.pad), *(("banned", i) for i in self.banned)]
        for name, value in named:
            if not 0 <= value < vocab_size:
                raise ValueError(f"{name} must be an id from 0 to {vocab_size - 1}, got {value}")


class Strategy(Protocol):
    """Chooses tokens: turns a batch of prompts into sequences."""

    @property
    def rows(self) -> int:
        """How many rows of the model's batch one prompt takes."""

    def decode(self, batch: DecodeBatch) -> list[list[Generated]]:
        """The sequences of each prompt of the batch, best first."""


class DecodeBatch:
    """Rows being decoded by one model: feeds them, rules tokens out, restarts at the context limit.

    Every row is fed at every step, also after its end, so how much each has seen is known without
    asking the device. `numbers` are the prompts' places in the caller's list.
    """

    def __init__(
        self,
        model: LanguageModel,
        prompts: Sequence[Sequence[int]],
        numbers: Sequence[int],
        request: Request,
        workspace: DecodeSession,
    ) -> None:
        self.model, self.workspace = model, workspace
        self.request = request
        self.numbers = list(numbers)
        self.device = workspace.device
        looks_always = self.device.type == "cpu" or request.on_token is not None
        self.every = 1 if looks_always else CHECK_EVERY  # steps between two looks of the host,
        self.behind = 0 if looks_always else 1  # who then reads all but the newest of them
        self.window = [len(prompt) for prompt in prompts]  # tokens of each row seen at the start,
        self.grown = 0  # and by every row since
        self.column = max(self.window)  # one past the newest token, in `history`
        limit = request.context
        self.limit = math.inf if limit is None else limit
        most = self.column + request.max_new - 1  # the last new token is never fed
        self.capacity = int(min(most, self.limit))
        self.restarts = most > self.limit
        # Prompts end at one column, so that the new tokens of all rows share theirs.
        history = torch.full((len(prompts), self.column + request.max_new), request.pad)
        for row, prompt in enumerate(prompts):
            history[row, self.column - len(prompt) : self.column] = torch.as_tensor(prompt)
        self.history = history.to(self.device)  # (B, P + max_new)
        self.banned: Tensor | None = None
        if request.banned:
            self.banned = torch.tensor(request.banned, device=self.device)
        self.slot: Slot  # memory of this batch alone, while it is decoded
        self.state: DecodeState
        self.step: Step | None = None

    def decoded(self, strategy: Strategy) -> list[list[Generated]]:
        """What the strategy makes of the rows."""
        with self.workspace.slot(len(self.window), self.capacity) as self.slot:
            return strategy.decode(self)

    def begin(self) -> Tensor:
        """Read the prompts; return the logits (B, V) of the first new token."""
        return self._permitted(self._start(), self.history[:, self.column - 1])

    def extend(self, ids: Tensor) -> Tensor:
        """Append one token (B,) to each row; return the logits (B, V) of the next."""
        if self.restarts:
            self.history[:, self.column] = ids
        self.column += 1
        self.grown += 1
        over = max(self.window) + self.grown > self.limit
        return self._permitted(self._start() if over else self._step(ids), ids)

    @property
    def captures(self) -> bool:
        """Is a step of all rows, with what chooses between them, worth capturing?"""
        return not self.restarts and self.slot.captures(self.request.max_new - 1)

    def feed(self, ids: Tensor) -> Tensor:
        """What `extend` does while the context lasts, by the model's plain step: to be captured."""
        logits = self.model.extend(ids[:, None], None, self.state)  # (B, V)
        return self._permitted(logits, ids)

    def _step(self, ids: Tensor) -> Tensor:
        """One more token in every row, by a recorded step where that pays."""
        if self.step is None:
            left = min(self.history.size(1), self.state.capacity) - self.column
            self.step = self.slot.recorded(self.grown, left)
        if self.step is not None:
            return self.step(ids)
        return self.model.extend(ids[:, None], None, self.state)  # (B, V)

    def expand(self, width: int) -> None:
        """Row b becomes `width` equal rows, side by side."""
        if width > 1:
            self.state.expand(width)
            if self.restarts:
                self.history = self.history.repeat_interleave(width, 0)
            self.window = [length for length in self.window for _ in range(width)]

    def select(self, parents: Tensor) -> None:
        """Row b becomes a copy of row parents[b]; both descend from one prompt (equal lengths)."""
        self.state.select(parents)
        if self.restarts:
            self.history = self.history[parents]

    def _start(self) -> Tensor:
        """Start the state afresh with what each row may still see of its past."""
        seen = [length + self.grown for length in self.window]
        half = max(1, int(self.limit) // 2) if self.restarts else 0
        self.window = [half if length > self.limit else length for length in seen]
        self.grown = 0
        longest = max(self.window)
        lengths = torch.tensor(self.window, device=self.device)  # (B,)
        places = (self.column - lengths)[:, None] + torch.arange(longest, device=self.device)
        # Past a row's end stands its last token, which `extend` ignores as padding.
        ids = self.history.gather(1, places.clamp(max=self.column - 1))  # (B, T)
        even = min(self.window) == longest
        self.state, self.step = self.slot.start(len(self.window), self.capacity), None
        return self.model.extend(ids, None if even else lengths, self.state)

    def _permitted(self, logits: Tensor, previous: Tensor) -> Tensor:
        """The logits, in at least single precision, with -inf at every token ruled out."""
        if logits.dtype in (torch.bfloat16, torch.float16):
            logits = logits.float()
        if self.banned is not None:
            logits = logits.index_fill(1, self.banned, -math.inf)
        if self.request.constraint is not None:
            logits = self.request.constraint(logits, previous)
        return logits


def check_prompts(prompts: Sequence[Sequence[int]], vocab_size: int) -> None:
    """Refuse a prompt that is empty, or holds an id that the vocabulary does not have."""
    for number, prompt in enumerate(prompts):
        if len(prompt) == 0:
            raise ValueError(f"prompts[{number}] is empty; a prompt has at least one id")
        wrong = [i for i in (min(prompt), max(prompt)) if not 0 <= i < vocab_size]
        if wrong:
            raise ValueError(
                f"prompts[{number}] holds {wrong[0]}; ids go from 0 to {vocab_size - 1}"
            )


def is_uniform(prompts: Sequence[Sequence[int]], batch_size: int, rows: int) -> list[list[int]]:
    """Numbers of prompts that are decoded together, `rows` rows each: of like lengths, for little
    padding.
    """
    order = sorted(range(len(prompts)), key=lambda number: len(prompts[number]))
    count = max(1, batch_size // rows)
    return [order[first : first + count] for first in range(0, len(order), count)]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Dropout off and no gradients inside; a model in training is put back into it. On a GPU no
    other thread computes meanwhile.
    """
    training = model.training
    if training:
        model.eval()
    try:
        with torch.inference_mode(), computing(device_of(model)):
            yield
    finally:
        if training:
            model.train()


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
    workspace: DecodeSession | None = None,
    keys: Sequence[int] | None = None,
) -> list[list[Generated]]:
    """Continue each prompt by at most `max_new` tokens or up to `end`: a list per prompt.

    A prompt is at least one id, normally `<S>` and what follows it. `Greedy` and `Sample` give one
    sequence per prompt, `Beam` its n best. The answer for a prompt does not depend on the prompts
    beside it nor on `batch_size`, the number of rows decoded together. `banned` ids are never
    produced, and `constraint` (a `ForbiddenTransitions`) rules out tokens by the one before; a row
    for which nothing is left ends with `dead_end`.

    `context` is the most positions the model can see. A row that would pass it goes on from its
    last context // 2 tokens, read afresh; so does a prompt that is too long. Rows that still fit
    keep all of theirs.

    `on_token(number of the prompt, id)` is called as each token is known, at the price of waiting
    for every one; beams cannot be streamed. A caller that decodes again and again keeps one
    `workspace` for it, and a recorded step serves all batches of one shape; threads may share it.
    `keys` number the prompts, where they are some of many, for samples, traces and `on_token`.
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
    names = range(len(prompts)) if keys is None else keys
    with evaluating(model):
        workspace = workspace or DecodeSession(model)
        for numbers in is_uniform(prompts, batch_size, strategy.rows):
            some, own = [prompts[n] for n in numbers], [names[n] for n in numbers]
            batch = DecodeBatch(model, some, own, request, workspace)
            for number, found in zip(numbers, batch.decoded(strategy), strict=True):
                results[number] = found
    return results


DIVERGED = (
    "the model's logits are not finite numbers: its weights have diverged or overflowed; train it "
    "again with a lower train.lr, or decode in fp32"
)
Pick = Callable[[Tensor, int], tuple[Tensor, Tensor]]


@dataclass(frozen=True, eq=False)
class StepOutput:
    """What was picked in some steps, on its way to the host."""

    ids: Tensor  # (steps, B)
    scores: Tensor  # (steps, B)
    logits: tuple[Tensor, ...]  # (B, V) each, where they are
    arrived: torch.cuda.Event | None


def send(picked: list[tuple[Tensor, Tensor, Tensor]]) -> StepOutput:
    """Ids (B,), scores (B,) and the logits (B, V) they were picked from, a triple per step, sent to
    the host, which need not wait for them yet.
    """
    ids, scores, logits = zip(*picked, strict=True)
    if len(picked) == 1:  # no copy
        one, other = ids[0][None], scores[0][None]
    else:
        one, other = torch.stack(ids), torch.stack(scores)
    if not one.is_cuda:
        return StepOutput(one, other, logits, None)
    one, other = one.to("cpu", non_blocking=True), other.to("cpu", non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record()
    return StepOutput(one, other, logits, arrived)


class HostRecord:
    """The host's record of one sequence per row: who has ended, and what was said until then."""

    def __init__(self, batch: DecodeBatch) -> None:
        rows = range(len(batch.numbers))
        self.batch = batch
        self.ids: list[list[int]] = [[] for _ in rows]
        self.log_probs: list[list[float]] = [[] for _ in rows]
        self.live = list(rows)
        self.dead: set[int] = set()

    def take(self, said: StepOutput) -> None:
        """Note what was picked."""
        if said.arrived is not None:
            said.arrived.synchronize()
        for step in zip(said.ids.tolist(), said.scores.tolist(), said.logits, strict=True):
            self._step(*step)

    def _step(self, ids: list[int], scores: list[float], logits: Tensor) -> None:
        request, ended = self.batch.request, set()
        for row in self.live:  # an ended row says nothing more
            if not math.isfinite(scores[row]):
                check_dead_end(logits[row])
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
        """One sequence for each row."""
        found = []
        for row, ids in enumerate(self.ids):
            values = self.log_probs[row] if log_probs else []
            finished = bool(ids) and ids[-1] == self.batch.request.end
            dead = row in self.dead
            one = Generated(
                ids=ids, log_probs=values, score=sum(values), finished=finished, dead_end=dead
            )
            found.append([one])
        return found


def follow(batch: DecodeBatch, pick: Pick, *, log_probs: bool = True) -> list[list[Generated]]:
    """Decode one sequence per row; `pick(scores, step)` chooses from (B, V) scores.

    It returns the ids (B,) and their scores (B,). Scores are log-probabilities, or the raw logits
    where `log_probs` is False, which saves normalising them. A row without any possible token has
    scores that are not finite, and ends there.
    """
    transcript = HostRecord(batch)
    picked: list[tuple[Tensor, Tensor, Tensor]] = []
    unread: list[StepOutput] = []
    logits = batch.begin()  # (B, V)
    for step in range(1, batch.request.max_new + 1):
        ids, chosen = pick(logits.log_softmax(-1) if log_probs else logits, step - 1)
        picked.append((ids, chosen, logits))
        last = step == batch.request.max_new
        if last or step % batch.every == 0:
            unread.append(send(picked))
            picked.clear()
            while len(unread) > (0 if last else batch.behind):
                transcript.take(unread.pop(0))
            if last or not transcript.live:
                break
        logits = batch.extend(ids)
    return transcript.results(log_probs=log_probs)


def check_dead_end(logits: Tensor) -> None:
    """Tell a dead end, where all logits (V,) are -inf, from a model that computes nonsense."""
    if not bool((logits == -math.inf).all()):
        raise UserError(DIVERGED)
