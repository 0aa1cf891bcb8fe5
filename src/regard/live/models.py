"""The parts of models: what their programs in JavaScript need.

Networks keep the names of their parameters. Positions become tables, computed here by the model's
own code: what is added to the embeddings, angles of rotations, and biases by distance.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import UserError
from regard.layers import find_layers
from regard.layers.embeddings import Inputs
from regard.layers.positions import Positions, Where
from regard.live.parts import LivePart, assets
from regard.models.decoder import Decoder
from regard.models.encoder import EncoderModel
from regard.models.linear import NaiveBayes, NGramModel, PixelLogistic
from regard.models.ngrams import TableModel
from regard.models.recurrent import RecurrentModel
from regard.models.transformer import TransformerConfig
from regard.models.vision import VisionTransformer

STACK = assets("self_attention", "hyena", "blocks")
SUPPORTED: dict[str, Sequence[str]] = {
    "score": ("scaled_dot", "dot", "negative_distance", "negative_log_distance"),
    "projections": ("learned",),
}
MIXERS = ("attention", "window", "hyena")


def table_part(model: TableModel) -> LivePart:
    """Return the n-grams as a tree, with their probabilities."""
    table, backoff, size = model.table, model.backoff, model.vocab_size
    backoff = dataclasses.replace(backoff, floor=backoff.floor.clone())
    model.set_backoff(backoff)
    contexts = table.borders()[table.order - 1]  # nodes that may have children
    nodes = torch.arange(contexts + 1) * size
    return LivePart(
        "ngrams",
        {"order": table.order, "vocab_size": size, "unseen": backoff.unseen.tolist()},
        assets("ngrams"),
        probabilities={
            "p": backoff.p,
            "weight": backoff.weight[:contexts],
            "floor": backoff.floor[:contexts],
        },
        arrays={
            "first": torch.searchsorted(table.codes, nodes),  # child of each node
            "symbols": table.symbols,
            "possible": backoff.possible.long(),
        },
    )


def linear_part(model: NGramModel, *, normalized: bool = False) -> LivePart:
    """Return the n-grams of a linear model, with a row of coefficients for each class."""
    c = model.config
    return LivePart(
        "linear",
        {
            "order": c.order,
            "n_positions": c.n_positions,
            "vocab_size": model.vocab_size,
            "markers": model.markers.tolist(),
            "weighting": model.weighting or c.weighting,
            "normalized": normalized,
        },
        assets("linear"),
        matrices={"coefficients": model.coefficients.T},
        arrays={"codes": model.codes, "idf": model.idf, "bias": model.bias},
    )


def naive_bayes_part(model: NaiveBayes) -> LivePart:
    """Return the same for a model whose scores are log-posteriors."""
    return linear_part(model, normalized=True)


def pixels_part(model: PixelLogistic) -> LivePart:
    """Return a coefficient for each pixel and class."""
    c = model.config
    config = {"columns": c.columns, "patch": c.patch, "mean": c.mean, "deviation": c.deviation}
    matrices = {"coefficients": model.coefficients.T}
    arrays = {"bias": model.bias}
    return LivePart("pixels", config, assets("pixels"), matrices, arrays=arrays)


def network_part(
    model: nn.Module,
    program: str,
    config: Mapping[str, Any],
    scripts: Sequence[Any],
    tables: Mapping[str, Tensor] = MappingProxyType({}),
    tabulated: Sequence[nn.Module | None] = (),
) -> LivePart:
    """Return the part of a network: matrices are quantised, but for those that make filters, whose
    errors would grow. `tables` stand for the parameters of the modules `tabulated`.
    """
    exact = {id(p) for layer in find_layers(model) for p in layer.undecayed_parameters()}
    left_out = {id(p) for module in tabulated if module is not None for p in module.parameters()}
    matrices, others = dict[str, Tensor](), dict(tables)
    for name, parameter in model.named_parameters():
        if id(parameter) not in left_out:
            small = parameter.dim() != 2 or id(parameter) in exact
            (others if small else matrices)[name] = parameter
    return LivePart(program, config, tuple(scripts), matrices, arrays=others)


def recurrent_part(model: RecurrentModel) -> LivePart:
    """Return the cells of torch, layer by layer."""
    config = {"n_layers": model.config.n_layers, "cell": model.cells.cells.mode}
    return network_part(model, "recurrent", config, assets("recurrent"))


def stack_config(config: TransformerConfig) -> dict[str, Any]:
    """Return the settings of a stack; UserError for those that no script implements."""
    for name, allowed in SUPPORTED.items():
        if getattr(config, name) not in allowed:
            raise UserError(
                f"live pages support {name} = {', '.join(allowed)}; this model has "
                f"{getattr(config, name)!r}"
            )
    if unknown := set(config.layer_mixers) - set(MIXERS):
        raise UserError(
            f"live pages support the mixers {', '.join(MIXERS)}; this model has "
            f"{', '.join(sorted(unknown))}"
        )
    return {**dataclasses.asdict(config), "mixers": config.layer_mixers}


def position_tables(positions: Positions, where: Where, length: int, width: int) -> dict[str, Any]:
    """Return what the positions of one sequence add to embeddings (T, D), the cosines and sines
    (T, K/2) of their rotation, and the biases (H, 2T - 1) of keys from T - 1 before a query on.
    """
    tables = {}
    added = positions.add(torch.zeros(1, length, width), where, length)[0]
    if added.any():
        tables["added"] = added
    rotation = positions.rotation(where)
    if rotation is not None:
        cosine, sine = (part.reshape(length, -1) for part in rotation)
        half = cosine.size(-1) // 2
        tables |= {"cosine": cosine[:, :half], "sine": sine[:, half:]}
    if positions.biased:
        keys = torch.arange(2 * length - 1)
        bias = positions.bias(torch.tensor([length - 1]), keys)  # (H, 1, 2T - 1)
        assert bias is not None
        tables["bias"] = bias[:, 0]
    return {name: table.detach().contiguous() for name, table in tables.items()}


@torch.no_grad()
def decoder_part(model: Decoder) -> LivePart:
    """Return a causal stack, of attention or Hyena."""
    config, length = stack_config(model.config), int(model.config.max_len)
    tables = position_tables(model.positions, range(length), length, model.config.d_model)
    scripts = *STACK, *assets("decoder")
    return network_part(model, "decoder", config, scripts, tables, [model.positions])


@torch.no_grad()
def encoder_part(model: EncoderModel) -> LivePart:
    """Return a stack without a mask, its pooling and its head, over tokens."""
    length, width = int(model.config.max_len), model.config.d_model
    encoder = model.encoder
    tables = position_tables(encoder.positions, range(length), length, width)
    if encoder.types is not None:  # a single text has the type 0
        tables["added"] = tables.get("added", torch.zeros(length, width)) + encoder.types.weight[0]
    config, scripts = stack_config(model.config), (*STACK, *assets("encoder"))
    tabulated = [encoder.positions, encoder.types]
    return network_part(model, "encoder", config, scripts, tables, tabulated)


@torch.no_grad()
def vision_part(model: VisionTransformer) -> LivePart:
    """Return an encoder of the patches of an image of the largest size."""
    c = model.config
    rows, columns = torch.meshgrid(
        torch.arange(c.rows) + 1, torch.arange(c.columns) + 1, indexing="ij"
    )
    ids = torch.zeros(1, 1 + c.rows * c.columns, model.vocab_size)
    ids[0, 1:, 0], ids[0, 1:, 1] = rows.flatten(), columns.flatten()
    source = Inputs(ids, torch.ones(ids.shape[:2], dtype=torch.long))
    where = model.encoder.embedding.where(source)
    length = ids.size(1)
    tables = position_tables(model.encoder.positions, where, length, c.d_model)
    for name in ("mean", "deviation"):
        tables[name] = getattr(model.encoder.embedding, name)
    config, scripts = stack_config(c), (*STACK, *assets("encoder"))
    return network_part(model, "encoder", config, scripts, tables, [model.encoder.positions])
