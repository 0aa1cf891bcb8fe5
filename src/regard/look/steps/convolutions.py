"""Steps through convolutional networks that predict labels and values, of tokens, series and
images: one position is followed, with the window that each filter sees.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.layers.embeddings import grid_sizes, patch_positions, to_image
from regard.layers.series import read_steps
from regard.look.steps.operations import (
    Add,
    Apply,
    Dot,
    Join,
    MeanRows,
    Stack,
    Standardize,
)
from regard.look.steps.outputs import pooled_classes
from regard.look.steps.parts import embed_steps, norm_steps, patch_names
from regard.look.steps.stages import Stage, Tracer, chain
from regard.look.steps.subject import StepSubject, register_steps
from regard.look.steps.windows import neighbors, position_name
from regard.models.convolution import ConvolutionalClassifier, Residual, SameConvolution
from regard.models.series_classifiers import SeriesConvolution
from regard.models.vision import ConvNet, ResidualBlock

Name = Callable[[Tracer, int], str]


@register_steps(ConvolutionalClassifier)
def classifier_steps(subject: StepSubject) -> None:
    """Follow a token through filters of several widths, further layers, and pooling."""
    model, ids = cast(ConvolutionalClassifier, subject.model), subject.tensors["ids"]
    names = subject.source_names(model.embedding, ids)
    t = subject.start(names)
    every = model.embedding(ids)[0]  # (T, D)
    with t.level("Input") as inner:
        x = embed_steps(inner, model.embedding, ids, [], every[t.position])
    outputs = []
    for module in model.filters:
        filters = cast(SameConvolution, module)
        width = int(filters.filters.kernel_size[0])
        with t.level(f"Filters of width {width}") as inner:
            outputs.append(filter_steps(inner, filters, every, t.position, x, position_name))
    with t.level("Filters") as inner:
        x = inner.step("All filters", Join(), *outputs, formula="those of all widths")
        every = t.activations["filters.output"]
        formula, measured = "max(0, xᵢ): is the motif there?", every[t.position]
        x = inner.step("ReLU", Apply("relu"), x, formula=formula, measured=measured)
    x, every = layer_steps(t, model.layers, x, every, t.position, position_name)
    pooled_classes(t, subject, x, every, names)


def filter_steps(
    t: Tracer, convolution: SameConvolution, every: Tensor, at: int, own: Stage, name: Name
) -> Stage:
    """Add filters over the window around a position; `own` is what stands there."""
    filters = convolution.filters
    width, dilation = int(filters.kernel_size[0]), int(filters.dilation[0])
    places = [at - convolution.padding[0] + k * dilation for k in range(width)]
    joined = neighbors(t, every, places, {at: own}, name)
    return filter_step(t, filters, joined, f"{width} positions")


def filter_step(t: Tracer, filters: Any, joined: Stage, where: str) -> Stage:
    """Add the filters (O, I, …) of a convolution over the joined vectors (… · I) of a window."""
    matrix = filters.weight.flatten(2).mT.flatten(1)  # (O, … · I)
    inputs = [t.given("filters", matrix)]
    if filters.bias is not None:
        inputs.append(t.given("bias of the filters", filters.bias))
    bias = " + bᵢ" if filters.bias is not None else ""
    formula = f"yᵢ = Σₖ xₖ Wᵢₖ{bias}, over {where}"
    return t.step("Filters", Dot(), joined, *inputs, formula=formula)


def layer_steps(
    t: Tracer, layers: Any, x: Stage, every: Tensor, at: int, name: Name
) -> tuple[Stage, Tensor]:
    """Add further layers, each with its residual connection; return (T, D) of all positions."""
    mask = torch.ones(1, len(every), dtype=torch.bool, device=every.device)
    for i, module in enumerate(layers):
        layer = cast(Residual, module)
        with t.level(f"Layer {i + 2}") as inner:
            y = chain(inner, x, norm_steps(inner, layer.norm, "Norm"))
            y = inner.step("ReLU", Apply("relu"), y, formula="max(0, xᵢ)")
            hidden = torch.relu(layer.norm(every))
            y = filter_steps(inner, layer.neighbours, hidden, at, y, name)
            every = layer(every[None], mask)[0]
            formula, measured = "xᵢ + yᵢ", every[at]
            x = inner.step("Residual", Add(), x, y, formula=formula, measured=measured)
    return x, every


@register_steps(SeriesConvolution)
def series_steps(subject: StepSubject) -> None:
    """Follow one step of a series through residual convolutions to the mean of its patch."""
    model, ids = cast(SeriesConvolution, subject.model), subject.tensors["ids"]
    patch, steps = int(model.config.patch), read_steps(subject.inputs(), *shape_of(model))
    what = "step" if patch == 1 else "patch"
    names = ["<S>", *(f"{what} {i}" for i in range(1, ids.size(1)))]
    t = subject.start(names)
    at = max(0, t.position - 1) * patch
    if patch > 1 or not t.position:
        t.trace.notes.append(f"Of the steps, number {at + 1} is followed.")
    length = int(steps.lengths[0])
    every = torch.cat((steps.values, steps.known.to(steps.values.dtype)), -1)[0, :length]
    every = every.to(model.head.weight.dtype)
    mask = torch.ones(1, length, dtype=torch.bool)
    with t.level("Input") as inner:
        words = "the values of the step, standardized (0 where missing), then 1 for each known one"
        x = inner.given(f"Step {at + 1}", every[at], shown=True, formula=words)
    with t.level("Layer 1") as inner:
        x = filter_steps(inner, model.first, every, at, x, step_name)
    every = model.first(every[None], mask)[0]
    x, every = layer_steps(t, model.layers, x, every, at, step_name)
    every = t.activations["filters.output"]
    with t.level("Output") as inner:
        x = inner.step("ReLU", Apply("relu"), x, formula="max(0, xᵢ)", measured=every[at])
        of = range(length) if not t.position else range(at, min(at + patch, length))
        if len(of) > 1:
            words = "the steps that a position stands for"
            rows = [f"step {i + 1}" for i in of]
            others = [inner.given(f"Step {i + 1}", every[i]) for i in of[1:]]
            x = inner.step("Steps", Stack(), x, *others, formula=words, rows=rows)
            x = inner.step("Mean of the steps", MeanRows(), x, formula="yᵢ = Σⱼ xⱼᵢ / n")
    pooled_classes(t, subject, x, model.vectors(subject.inputs())[0], names)


def shape_of(model: SeriesConvolution) -> tuple[int, int]:
    """Return the steps of a patch and the values of a step."""
    return int(model.config.patch), int(model.config.n_channels)


def step_name(t: Tracer, at: int) -> str:
    """Name a step of a series."""
    return f"Step {at + 1}" if at >= 0 else "Before the series"


class Plane:
    """A cell of an image that is followed, at the present resolution."""

    def __init__(self, values: Tensor, row: int, column: int) -> None:
        self.values, self.row, self.column = values, row, column  # (1, C, Y, X)

    @property
    def every(self) -> Tensor:
        """The vectors (Y · X, C) of all cells."""
        return self.values[0].flatten(1).mT

    @property
    def at(self) -> int:
        return self.index(self.row, self.column)

    @property
    def vector(self) -> Tensor:
        """The vector (C,) of the cell."""
        return self.every[self.at]

    def index(self, row: int, column: int) -> int:
        """Return the number of a cell, −1 if it is outside."""
        rows, columns = self.values.shape[2:]
        inside = 0 <= row < rows and 0 <= column < columns
        return row * columns + column if inside else -1

    def name(self, t: Tracer, at: int) -> str:
        """Name a cell by its row and column."""
        row, column = divmod(at, self.values.size(3))
        return f"Cell {row + 1}, {column + 1}" if at >= 0 else "Outside the image"

    def window(self, t: Tracer, own: Stage, first: tuple[int, int], size: int) -> Stage:
        """Add the vectors of a square of cells, row by row; `own` is that of the cell."""
        places = [self.index(first[0] + i, first[1] + j) for i in range(size) for j in range(size)]
        return neighbors(t, self.every, places, {self.at: own}, self.name)

    def around(self, t: Tracer, own: Stage) -> Stage:
        """Add the vectors of the cell and of its eight neighbors."""
        return self.window(t, own, (self.row - 1, self.column - 1), 3)

    def moved(self, values: Tensor, stride: int = 1) -> Plane:
        """Return the cell among other values, `stride` times coarser."""
        return Plane(values, self.row // stride, self.column // stride)


@register_steps(ConvNet)
def image_steps(subject: StepSubject) -> None:
    """Follow the pixel in the middle of a patch through filters and coarser resolutions."""
    model, source = cast(ConvNet, subject.model), subject.inputs()
    names = patch_names(model, source.ids, subject.pipeline.source_tokenizer)
    t = subject.start(names)
    rows, columns = (int(n) for n in grid_sizes(source)[0].tolist())
    patch = int(model.config.patch)
    row, column = (int(n) - 1 for n in patch_positions(source)[0, max(1, t.position)].tolist())
    pixels, _ = to_image(source, rows, columns, patch)
    plane = Plane(pixels, row * patch + patch // 2, column * patch + patch // 2)
    t.trace.notes.append(
        f"The pixel in row {plane.row + 1}, column {plane.column + 1} of the image is followed"
        + ("." if t.position else ": <S> is the mean of all patches.")
    )
    with t.level("Input") as inner:
        x = inner.given("Pixel", plane.vector, shown=True, formula="a byte for each channel")
        scales = [
            inner.given(name, getattr(model, name).flatten()) for name in ("mean", "deviation")
        ]
        plane = plane.moved((pixels - model.mean) / model.deviation)
        formula = "(pixelᵢ − mean) / deviation of the channel"
        x = inner.step("Standardized pixel", Standardize(), x, *scales, formula=formula)
    with t.level("First filters") as inner:
        x = filter_step(inner, model.first, plane.around(inner, x), "3 × 3 pixels")
        plane = plane.moved(model.first(plane.values))
    for i, stage in enumerate(model.stages):
        for j, block in enumerate(cast(nn.ModuleList, stage)):
            with t.level(f"Resolution {i + 1}, block {j + 1}") as inner:
                x, plane = block_steps(inner, cast(ResidualBlock, block), x, plane)
        if i < len(model.downsampling):
            stride = int(model.config.strides[i])
            with t.level(f"Downsampling {i + 1}") as inner:
                first = plane.row // stride * stride, plane.column // stride * stride
                joined = plane.window(inner, x, first, stride)
                layer = cast(nn.Conv2d, model.downsampling[i])
                x = filter_step(inner, layer, joined, f"{stride} × {stride} cells")
                plane = plane.moved(layer(plane.values), stride)
    with t.level("Output") as inner:
        measured = t.activations["filters.output"][plane.at]
        x = chain(inner, x, norm_steps(inner, model.norm, "Last norm"), measured)
        if not t.position:
            cells = inner.given("other patches", t.activations["filters.output"])
            x = inner.step("Mean of the patches", MeanRows(), cells, formula="yᵢ = Σⱼ xⱼᵢ / n")
    pooled_classes(t, subject, x, model.vectors(source)[0], names)


def block_steps(t: Tracer, block: ResidualBlock, x: Stage, plane: Plane) -> tuple[Stage, Plane]:
    """Add two layers of filters and the residual connection."""
    y, hidden = x, plane
    for number, (norm, module) in enumerate(zip(block.norms, block.filters, strict=True)):
        filters = cast(nn.Conv2d, module)
        with t.level(f"Layer {number + 1}") as inner:
            y = chain(inner, y, norm_steps(inner, cast(Any, norm).norm, "Norm"))
            y = inner.step("GELU", Apply("gelu_exact"), y, formula="x Φ(x)")
            hidden = hidden.moved(nn.functional.gelu(norm(hidden.values)))
            y = filter_step(inner, filters, hidden.around(inner, y), "3 × 3 cells")
            hidden = hidden.moved(filters(hidden.values))
    plane = plane.moved(block(plane.values, torch.ones_like(plane.values[:, :1])))
    formula = "xᵢ + yᵢ"
    return t.step("Residual", Add(), x, y, formula=formula, measured=plane.vector), plane
