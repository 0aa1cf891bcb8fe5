"""Steps through forecasters over patches: stacks of blocks, LSTMs and convolutions."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.look.steps.operations import Add, Apply, Dot, LinearAt
from regard.look.steps.parts import embed_steps
from regard.look.steps.recurrent import cell_steps
from regard.look.steps.stacks import run_stack
from regard.look.steps.stages import Names, Stage, Tracer, Ways
from regard.look.steps.subject import StepSubject, register_steps
from regard.look.steps.windows import window
from regard.models.patch_forecaster import (
    ConvolutionalForecaster,
    DecoderForecaster,
    PatchForecaster,
    RecurrentForecaster,
)

ENCODERS = Ways()  # (tracer, model, patches, names) -> the position, and (N, D) of all positions
READOUTS = Ways()  # (tracer, x, encoded) -> what the head reads
Encoded = tuple[Stage, Tensor]
FIRST_CHANNEL = "The first channel is followed."


@register_steps(PatchForecaster, RecurrentForecaster)
def forecaster_steps(subject: StepSubject) -> None:
    """Follow a patch of the first channel to the forecast."""
    model, past = subject.model, subject.tensors["past"]
    values, mean, deviation = model.window_norm(model.covariates.subtract(past))
    patches = model.cut(values)[:1]
    names = [f"patch {i + 1}" for i in range(patches.size(1))]
    t = subject.start(names, [FIRST_CHANNEL])
    encode, read_out = ENCODERS.find(model), READOUTS.find(model)
    assert encode is not None and read_out is not None
    x, encoded = encode(t, model, patches, names)
    with t.level("Output") as inner:
        x = read_out(inner, x, encoded)
        units = float(deviation[0, 0, 0]), float(mean[0, 0, 0])
        forecast_steps(inner, subject, x, *units)


def forecast_steps(
    t: Tracer, subject: StepSubject, x: Stage, deviation: float, mean: float
) -> None:
    """Add the forecast: normalized, at the level of the window, and in the units of the data."""
    model = subject.model
    steps = horizon_names(model.config)
    formula = "yᵢ = Σₖ xₖ Wᵢₖ + bᵢ"
    y = t.linear("Forecast, normalized", model.head, x, formula, columns=steps)
    measured = None if model.covariates.n_known else subject.output[0, :, 0].flatten()
    formula, how = "yᵢ · deviation + mean of the window", LinearAt(deviation, mean)
    x = t.step("Forecast", how, y, formula=formula, columns=steps, measured=measured)
    in_units(t, subject, x, steps)


def in_units(t: Tracer, subject: StepSubject, x: Stage, columns: Names = ()) -> None:
    """Add a forecast in the units of the data: models see standardized values."""
    steps = subject.pipeline.tokenizer
    how = LinearAt(float(steps.deviation[0]), float(steps.mean[0]))
    formula = "ŷ · deviation + mean of the training values of the channel"
    t.step("In the units of the data", how, x, formula=formula, columns=columns)


def horizon_names(config: Any) -> Names:
    """Return names of the steps of the horizon, one for each quantile."""
    steps = [f"step {i + 1}" for i in range(config.horizon)]
    if config.n_outputs > 1:
        return [f"{step}, level {level:g}" for step in steps for level in config.quantiles]
    return steps


@ENCODERS.register(PatchForecaster)
def encode_stack(t: Tracer, model: PatchForecaster, patches: Tensor, names: Names) -> Encoded:
    """Add the stages of a stack of blocks."""
    x = run_stack(t, model, patches, None, names)
    return x, t.activations["norm"]


def embed_patch(t: Tracer, model: Any, patches: Tensor) -> Stage:
    """Add the steps of the patch and their linear map."""
    measured = model.embedding(patches)[0, t.position]
    with t.level("Input") as inner:
        return embed_steps(inner, model.embedding, patches, [], measured)


@ENCODERS.register(RecurrentForecaster)
def encode_recurrence(
    t: Tracer, model: RecurrentForecaster, patches: Tensor, names: Names
) -> Encoded:
    """Add the gates of every LSTM, one over the other."""
    x, every = embed_patch(t, model, patches), model.embedding(patches)
    for i, layer in enumerate(model.layers):
        cells = cast(nn.LSTM, layer)
        zero = every.new_zeros(1, cells.hidden_size)
        with t.level(f"LSTM {i + 1}") as inner:
            x = cell_steps(inner, cells, x, every, (zero, zero))
        every = cells(every)[0]
    return x, every[0]


@ENCODERS.register(ConvolutionalForecaster)
def encode_convolutions(
    t: Tracer, model: ConvolutionalForecaster, patches: Tensor, names: Names
) -> Encoded:
    """Add each dilated convolution with its residual connection."""
    x, every = embed_patch(t, model, patches), model.embedding(patches)
    for i, module in enumerate(model.layers):
        layer, reach = cast(nn.Conv1d, module), 1 << i
        padded = nn.functional.pad(every.mT, (2 * reach, 0))
        output = every + torch.relu(layer(padded)).mT
        with t.level(f"Convolution {i + 1}") as inner:
            joined = window(inner, every[0], (2 * reach, reach, 0), x)
            matrix = layer.weight.permute(0, 2, 1).flatten(1)  # (D, 3·D), the oldest first
            inputs = [inner.given("filters", matrix)]
            if layer.bias is not None:
                inputs.append(inner.given("bias of the filters", layer.bias))
            formula = "yᵢ = Σₖ xₖ Wᵢₖ + bᵢ, over three patches"
            y = inner.step("Filters", Dot(), joined, *inputs, formula=formula)
            y = inner.step("Activation", Apply("relu"), y, formula="max(0, yᵢ)")
            measured = output[0, t.position]
            x = inner.step("Residual", Add(), x, y, formula="xᵢ + yᵢ", measured=measured)
        every = output
    return x, every[0]


@READOUTS.register(PatchForecaster)
def all_patches(t: Tracer, x: Stage, encoded: Tensor) -> Stage:
    """Return the vectors of all patches, one after the other."""
    words = "the vectors of all patches, one after the other"
    return t.given("All patches", encoded.flatten(), formula=words, shown=True)


@READOUTS.register(DecoderForecaster, RecurrentForecaster)
def last_patch(t: Tracer, x: Stage, encoded: Tensor) -> Stage:
    """Return the vector of the last patch, which has read all others."""
    if t.position == len(encoded) - 1:
        return x
    return t.given("Last patch", encoded[-1], formula="it has read all others", shown=True)
