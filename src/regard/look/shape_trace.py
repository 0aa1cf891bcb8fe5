"""Every tensor that a model makes of one input, from ids to logits, with its shape in letters and
in numbers.

Letters are those of the whole project: B batch, T query positions, S key positions, N patches or
points, D model width, H heads, G key-value heads, K head width, F hidden width, V vocabulary; O are
the outputs of a predictor. A size without a letter is a number. Modules are watched by hooks, and
what is computed within them (scores, weights) by the model's taps, in the order of computation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from regard.decoding.engine import evaluating
from regard.layers.tap import Tap
from regard.look.page import Page, Table, Text
from regard.pipelines import Pipeline

MEANINGS = {
    "B": "batch: inputs read at once",
    "T": "query positions",
    "S": "key positions, or those of the source",
    "N": "patches or points, with the first marker",
    "D": "width of the model",
    "H": "heads",
    "G": "key-value heads",
    "K": "width of a head",
    "F": "width within the feed-forward network",
    "V": "vocabulary",
    "O": "outputs: classes, labels or values",
    "L": "steps of the look-back",
    "C": "channels",
}
FIELDS = {"D": "d_model", "H": "n_heads", "G": "n_kv_heads", "K": "d_head", "F": "d_ff"}
HINTS = {  # the last axis of what a module of this name makes
    "qkv": "(H+2G)K",
    "kv": "2D",
    "q": "D",
    "out": "D",
    "up": "F",
    "hidden": "F",
    "gates": "2D",
    "gate_up": "2F",
    "streams": "3D",
    "down": "D",
    "embedding": "D",
    "table": "D",
}
LENGTHS = ("T", "S", "N", "L")
PARTS = ("attention", "cross", "feedforward")  # their output is that of a module, seen already
UNSEEN = (nn.Dropout, nn.Identity)


@dataclass(frozen=True)
class ShapeRow:
    """One tensor: what made it, its name, and its axes as letters, or numbers without a letter."""

    name: str
    maker: str
    letters: tuple[str, ...]
    shape: tuple[int, ...]


@dataclass(eq=False)
class ShapeTrace:
    """The tensors of one input in the order of computation, and what the letters are there."""

    sizes: dict[str, int]
    rows: list[ShapeRow] = field(default_factory=list)

    @property
    def used(self) -> dict[str, int]:
        """The letters that occur, with their sizes for this input."""
        text = " ".join(letter for row in self.rows for letter in row.letters)
        return {letter: self.sizes[letter] for letter in MEANINGS if letter in text}

    def table(self) -> Table:
        """Return a row for each tensor."""
        rows = [
            [i, x.name, x.maker, f"({', '.join(x.letters)})", f"({', '.join(map(str, x.shape))})"]
            for i, x in enumerate(self.rows, start=1)
        ]
        columns = ["", "tensor", "made by", "letters", "this input"]
        return Table(columns, rows, ["right", *["left"] * 4])

    def legend(self) -> Table:
        rows = [[letter, size, MEANINGS[letter]] for letter, size in self.used.items()]
        return Table(["letter", "here", "meaning"], rows, ["left", "right", "left"])

    def page(self, title: str) -> Page:
        """Return the trace as a page."""
        page = Page(title, f"{len(self.rows)} tensors from the input to the output")
        page.section("Tensors", "In the order in which they are computed.")
        page.add(self.table())
        page.section("Letters", "What each axis counts.")
        page.add(self.legend())
        page.add(Text("An axis without a letter has its number."))
        return page


class ShapeTap(Tap):
    """A tap that adds to a trace the shapes of activations that no module returns."""

    def __init__(self, trace: Recorder, prefix: str = "") -> None:
        super().__init__(["*"], _prefix=prefix)
        self.trace = trace

    def at(self, name: str | int) -> ShapeTap:
        return ShapeTap(self.trace, f"{self.prefix}{name}.")

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        part = self.prefix.removesuffix(".").rpartition(".")[2]
        if name != "norm" and not (name == "output" and part in PARTS):
            self.trace.add_activation(self.prefix + name, tensor)
        return tensor


class Recorder:
    """Names the axes of tensors as they are made; `encoder` is the path of a stack whose positions
    are those of a source.
    """

    def __init__(self, model: nn.Module) -> None:
        config: Any = getattr(model, "config", None)
        sizes = {letter: int(getattr(config, name, 0) or 0) for letter, name in FIELDS.items()}
        sizes["V"] = int(getattr(model, "vocab_size", 0))
        sizes["O"] = int(getattr(config, "n_outputs", 0) or 0)
        if sizes["H"] and not sizes["K"]:
            sizes["K"] = sizes["D"] // sizes["H"]
        sizes["G"] = sizes["G"] or sizes["H"]
        self.trace = ShapeTrace({letter: size for letter, size in sizes.items() if size})
        self.source = ""  # the path of the encoder of a pair

    def add_inputs(self, tensors: Mapping[str, Tensor]) -> None:
        """Learn the lengths of an input, and add its tensors."""
        self.source = "encoder" if "source" in tensors else ""
        for name, tensor in tensors.items():
            letter = "N" if tensor.dim() == 3 else "S" if name == "source" else "T"
            last = [str(size) for size in tensor.shape[2:]]
            if name == "past":
                letter, last = "L", ["C"]
                self.trace.sizes["C"] = tensor.size(2)
            self.trace.sizes |= {"B": tensor.size(0), letter: tensor.size(1)}
            self.add(name, "tokenizer", tensor.shape, ["B", letter, *last])

    def add(self, name: str, maker: str, shape: Sequence[int], letters: Sequence[str]) -> None:
        """Add a tensor; a letter whose size is another gives way to the number."""
        checked = [self.checked(letter, size) for letter, size in zip(letters, shape, strict=True)]
        self.trace.rows.append(ShapeRow(name, maker, tuple(checked), tuple(shape)))

    def checked(self, letter: str, size: int) -> str:
        """Return a letter if it has this size, else another one of positions, else the number."""
        others = LENGTHS if letter in LENGTHS else ()
        return next((x for x in (letter, *others) if self.size_of(x) == size), str(size))

    def size_of(self, letter: str) -> int:
        """Return the size of a letter or of an expression of several; -1 if it has none."""
        s = self.trace.sizes
        products = {
            "(H+2G)K": (s.get("H", 0) + 2 * s.get("G", 0)) * s.get("K", 0),
            "2D": 2 * s.get("D", 0),
            "3D": 3 * s.get("D", 0),
            "2F": 2 * s.get("F", 0),
            "H·K": s.get("H", 0) * s.get("K", 0),
        }
        return products.get(letter) or s.get(letter, -1)

    def add_output(self, path: str, module: nn.Module, value: Any) -> None:
        """Add what a module returns: a tensor, or the first of several."""
        tensor = value[0] if isinstance(value, tuple) else value
        if not isinstance(tensor, Tensor):
            return
        last = self.last_letter(path, tensor.shape[-1]) if tensor.dim() else ""
        self.add(path, type(module).__name__, tensor.shape, self.letters(path, tensor, last))

    def letters(self, path: str, tensor: Tensor, last: str) -> list[str]:
        """Return letters for the axes of a tensor (B, …, last)."""
        if tensor.dim() == 2 and path.endswith(".weights"):  # one for each position
            return ["B", self.length_of(path)]
        if tensor.dim() <= 2 and tensor.is_floating_point():
            return ["B", last][-tensor.dim() :] if tensor.dim() else []
        return ["B", *[self.length_of(path)] * (tensor.dim() - 2), last]

    def length_of(self, path: str) -> str:
        """Return the letter of the positions of a stack."""
        if "N" in self.trace.sizes and (not self.source or path.startswith(self.source)):
            return "N"
        return "S" if self.source and path.startswith(self.source) else "T"

    def last_letter(self, path: str, size: int) -> str:
        """Return the letter of a last axis: by the name of its module, else by its size."""
        name = path.rpartition(".")[2]
        hints = ["O", "V"] if name in ("head", "output") else [HINTS.get(name, "D")]
        others = ["D", "F", "V", "O", "2F", "2D"] if size > 1 else []
        return next((x for x in (*hints, *others) if self.size_of(x) == size), str(size))

    def add_activation(self, name: str, tensor: Tensor) -> None:
        """Add what a tap was given."""
        last, inside = name.rpartition(".")[2], self.length_of(name)
        keys = "S" if ".cross." in f".{name}" else inside
        if last in ("weights", "scores") and tensor.dim() == 4:
            if keys == "T":
                keys = "S" if self.trace.sizes.get("S") == tensor.size(3) else "T"
            letters = ["B", "H", inside, keys]
        elif tensor.dim() == 4:  # queries, keys, values and heads
            shared = keys == "S" or last in ("q", "heads")
            letters = ["B", "H" if shared else "G", inside if last in ("q", "heads") else keys, "K"]
        else:
            last = self.last_letter("head" if name == "logits" else name, tensor.shape[-1])
            letters = self.letters(name, tensor, last)
        if tensor.dim() == len(letters):
            self.add(name, "attention" if len(letters) == 4 else "model", tensor.shape, letters)


def trace_shapes(pipeline: Pipeline, item: str = "", target: str = "") -> ShapeTrace:
    """Return the tensors that a model makes of an item, and of a target if it reads two; without an
    item, of the first held-out record.
    """
    model = pipeline.model
    recorder, prepared = Recorder(model), pipeline.prepare(item, target)
    recorder.add_inputs(prepared.tensors)
    with ExitStack() as hooks, evaluating(model):
        for path, module in model.named_modules():
            for handle in watch(recorder, path, module):
                hooks.callback(handle.remove)
        output = prepared.run(ShapeTap(recorder))
    if tuple(output.shape) != recorder.trace.rows[-1].shape:  # else the last row is the output
        recorder.add_output("output", model, output)
    return recorder.trace


def watch(recorder: Recorder, path: str, module: nn.Module) -> list[Any]:
    """Attach the hooks of one module; return their handles."""
    handles: list[Any] = []
    if hasattr(module, "n_heads") and isinstance(module.out, nn.Linear):  # an attention layer

        def gather(_: nn.Module, args: tuple[Tensor, ...]) -> None:
            value = args[0]
            letters = ["B", recorder.length_of(path), "H·K"]
            recorder.add(f"{path}.heads", "heads side by side", value.shape, letters)

        handles.append(module.out.register_forward_pre_hook(gather))
    if next(module.children(), None) is None and not isinstance(module, UNSEEN):

        def output(made: nn.Module, args: Any, value: Any) -> None:
            recorder.add_output(path, made, value)

        handles.insert(0, module.register_forward_hook(output, prepend=True))
    return handles
