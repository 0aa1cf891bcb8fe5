"""The encoder–decoder against torch.nn.Transformer, and its paths against one another."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from regard.decoding import Beam, Greedy, engine, generate
from regard.layers.embeddings import Inputs
from regard.models.encoder_decoder import EncoderDecoder, modern, vaswani

V = 37
PRESETS = {"modern": modern, "vaswani": vaswani}


def make(preset="modern", **options):
    torch.manual_seed(1)
    config = dataclasses.replace(PRESETS[preset](2, 32), n_heads=4, n_kv_heads=4, d_head=8)
    return EncoderDecoder(V, dataclasses.replace(config, **{"dropout": 0.0, **options})).eval()


def padded(rows, fill=0):
    width = max(map(len, rows))
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows])


def source_of(rows):
    segments = padded([[1] * len(row) for row in rows])
    return Inputs(padded(rows), segments)


def sentences(seed, count, low=2, high=9):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(low, high, (count,), generator=generator).tolist()
    return [torch.randint(3, V, (n,), generator=generator).tolist() for n in lengths]


def torch_weights(ours, post_norm):
    """The same weights in torch.nn.Transformer."""
    theirs = nn.Transformer(32, 4, 2, 2, 128, 0.0, batch_first=True, norm_first=not post_norm)
    if post_norm:
        theirs.encoder.norm = theirs.decoder.norm = None
    for mine, stack in ((ours.encoder, theirs.encoder), (ours.decoder, theirs.decoder)):
        if not post_norm:
            stack.norm.load_state_dict(mine.norm.state_dict())
        for block, layer in zip(mine.blocks, stack.layers, strict=True):
            attention(layer.self_attn, block.mixer.qkv, block.mixer.out)
            layer.linear1.load_state_dict(block.feedforward.up.state_dict())
            layer.linear2.load_state_dict(block.feedforward.down.state_dict())
            norms = [block.mixer_norm, block.feedforward_norm]
            if block.cross is not None:
                cross = block.cross
                both = nn.Linear(32, 96)
                both.weight.data = torch.cat((cross.q.weight, cross.kv.weight))
                both.bias.data = torch.cat((cross.q.bias, cross.kv.bias))
                attention(layer.multihead_attn, both, cross.out)
                norms.insert(1, block.cross_norm)
            for i, norm in enumerate(norms, start=1):
                getattr(layer, f"norm{i}").load_state_dict(norm.state_dict())
    return theirs.eval()


def attention(theirs, qkv, out):
    theirs.in_proj_weight.data = qkv.weight.data
    theirs.in_proj_bias.data = qkv.bias.data
    theirs.out_proj.load_state_dict(out.state_dict())


@pytest.mark.filterwarnings("ignore:enable_nested_tensor", "ignore:The PyTorch API of nested")
@pytest.mark.parametrize("preset", PRESETS)
@torch.no_grad()
def test_it_is_the_transformer_of_torch(preset):
    ours = make(preset)
    for parameter in ours.parameters():  # biases and gains too
        parameter.add_(0.1 * torch.randn_like(parameter))
    theirs = torch_weights(ours, preset == "vaswani")
    sources, targets = sentences(1, 4), sentences(2, 4)
    source, ids = source_of(sources), padded(targets)
    add = ours.decoder.positions.add
    x, y = (add(ours.decoder.embedding(i) * 32**0.5, range(i.size(1))) for i in (source.ids, ids))
    hidden = source.segments == 0
    expected = theirs(
        x,
        y,
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(ids.size(1)),
        src_key_padding_mask=hidden,
        memory_key_padding_mask=hidden,
        tgt_is_causal=True,
    )
    found = ours(ids, None, source)
    for row, target in enumerate(targets):
        torch.testing.assert_close(
            found[row, : len(target)], expected[row, : len(target)], atol=1e-5, rtol=1e-5
        )


@torch.no_grad()
def test_pairs_that_share_a_row_are_read_as_if_alone():
    model = make()
    sources, targets = sentences(3, 3), sentences(4, 3)
    row = Inputs(
        torch.tensor([[i for s in sources for i in s] + [0, 0]]),
        torch.tensor([[n for n, s in enumerate(sources, 1) for _ in s] + [0, 0]]),
    )
    ids = torch.tensor([[i for t in targets for i in t] + [0]])
    segments = torch.tensor([[n for n, t in enumerate(targets, 1) for _ in t] + [0]])
    together = [model(ids, segments, row), model.condition(row).hidden(ids, segments)]
    at = 0
    for source, target in zip(sources, targets, strict=True):
        alone = model(torch.tensor([target]), None, source_of([source]))[0]
        for found in together:
            torch.testing.assert_close(found[0, at : at + len(target)], alone, atol=1e-5, rtol=1e-5)
        at += len(target)


@pytest.mark.parametrize("preset", PRESETS)
@torch.no_grad()
def test_steps_give_the_logits_of_the_whole(preset):
    model = make(preset)
    sources = sentences(5, 3)
    given = model.condition(source_of(sources))
    ids = torch.randint(3, V, (3, 7))
    whole = given.logits(ids)  # (B, T, V)
    state = given.start(3, 7)
    for t in range(7):
        step = given.extend(ids[:, t : t + 1], None, state)
        torch.testing.assert_close(step, whole[:, t], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("strategy", [Greedy(), Beam(width=3, n_best=3)])
@torch.no_grad()
def test_a_sentence_is_translated_alone_as_among_others(strategy, monkeypatch):
    model = make()
    sources = sentences(6, 7)
    options = {"max_new": 30, "end": 2, "banned": [0, 1], "batch_size": 64}
    given = model.condition(source_of(sources))
    together = generate(given, [[1]] * 7, strategy, **options)
    monkeypatch.setattr(engine, "pays", lambda *_: False)  # and without a recorded step
    for source, found in zip(sources, together, strict=True):
        alone = generate(model.condition(source_of([source])), [[1]], strategy, **options)[0]
        assert [one.ids for one in found] == [one.ids for one in alone]


@torch.no_grad()
def test_translating_does_not_turn_dropout_on():
    model = make(dropout=0.5).eval()
    for module in model.modules():
        if hasattr(module, "dropout"):
            module.dropout = 0.5
    given = model.condition(source_of([[5, 6, 7, 2]]))
    options = {"max_new": 20, "end": 2, "banned": [0, 1, 2]}
    first, again = (generate(given, [[1]], Greedy(), **options)[0][0].ids for _ in range(2))
    assert first == again and not any(module.training for module in model.modules())


@torch.no_grad()
def test_one_memory_reads_one_source_after_another():
    model = make()
    space = None
    given = model.condition(source_of([[5, 6, 7, 2]]))
    for sentence in ([5, 6, 7, 2], [9, 8, 2], [3, 4, 5, 2]):
        rows = padded([sentence, [1] * 4])[:1]
        source = Inputs(rows, (torch.arange(4) < len(sentence))[None].long())
        given.read(source)
        space = space or engine.DecodeSession(given)
        options = {"max_new": 40, "end": 2, "banned": [0, 1, 2]}
        again = generate(given, [[1]], Greedy(), workspace=space, **options)
        afresh = generate(model.condition(source_of([sentence])), [[1]], Greedy(), **options)
        assert again[0][0].ids == afresh[0][0].ids
    (slot,) = space.slots.idle
    assert slot.step is not None  # it was recorded once


@torch.no_grad()
def test_a_source_may_have_words_of_its_own():
    model = make(source_vocab=90)
    assert model.encoder.embedding.weight.shape == (90, 32)
    found = model(torch.tensor([[1, 4]]), None, source_of([[80, 89, 2]]))
    assert found.shape == (1, 2, 32) and bool(torch.isfinite(found).all())
