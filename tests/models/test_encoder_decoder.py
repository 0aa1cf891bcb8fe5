"""The encoder–decoder against torch.nn.Transformer, the captioner against its parts, and the
paths of both against one another.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from torch import nn

from regard.decoding import Beam, Greedy, engine, generate
from regard.decoding.engine import translate
from regard.layers.embeddings import Inputs
from regard.layers.masks import Rendered
from regard.layers.tap import Tap
from regard.models.encoder_decoder import (
    Captioner,
    CaptionerConfig,
    EncoderDecoder,
    EncoderDecoderConfig,
    modern,
    modern_captioner,
    vaswani,
    vit,
)
from regard.models.transformer import TransformerConfig
from regard.models.vision import VisionTransformer
from regard.tokenizers import Patches
from regard.training.objectives import NextTokenObjective

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
    state = given.init_state(3, 7)
    for t in range(7):
        step = given.step(ids[:, t : t + 1], None, state)
        torch.testing.assert_close(step, whole[:, t], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("strategy", [Greedy(), Beam(width=3, n_best=3)])
@torch.no_grad()
def test_a_sentence_is_translated_alone_as_among_others(strategy, monkeypatch):
    model = make()
    sources = sentences(6, 7)
    options = {"max_new": 30, "end": 2, "banned": [0, 1], "batch_size": 64}
    given = model.condition(source_of(sources))
    together = generate(given, [[1]] * 7, strategy, **options)
    monkeypatch.setattr(engine, "replay_pays", lambda *_: False)  # and without a recorded step
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
        given.set_source(source)
        space = space or engine.DecodeSession(given)
        options = {"max_new": 40, "end": 2, "banned": [0, 1, 2]}
        again = generate(given, [[1]], Greedy(), session=space, **options)
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


# Captioners

SIZES = ((9, 13), (9, 13), (5, 6), (12, 4))
WORDS = 11


@pytest.fixture(scope="module")
def images():
    random = np.random.default_rng(0)
    return [random.integers(0, 256, (*size, 3), dtype=np.uint8) for size in SIZES]


def make_captioner(preset, images, words=WORDS, **more):
    tokenizer = Patches.train(images, patch=4)
    torch.manual_seed(0)
    options = {
        "source_vocab": tokenizer.vocab_size,
        "max_len": 12,
        "dropout": 0.0,
        **tokenizer.model_config,
    }
    model = Captioner(words, dataclasses.replace(preset(2, 32), **options, **more)).eval()
    with torch.no_grad():
        for block in model.decoder.blocks:  # so that it looks hard at what it is shown
            block.cross.q.weight *= 8
            block.cross.out.weight *= 12
    return model, tokenizer


def batch_of(images, tokenizer, more=0):
    """Images in rows of one length; the padding is random."""
    tokens = [torch.from_numpy(tokenizer.encode_batch([p])[0]) for p in images]
    width = max(map(len, tokens)) + more
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(256, (len(tokens), width, tokenizer.vocab_size), generator=generator)
    segments = torch.zeros(len(tokens), width, dtype=torch.long)
    for i, row in enumerate(tokens):
        ids[i, : len(row)], segments[i, : len(row)] = row.long(), 1
    return Inputs(ids.to(torch.uint8), segments)


def test_it_has_no_code_of_its_own():
    methods = {k for k, v in vars(Captioner).items() if callable(v) and not k.startswith("_")}
    assert issubclass(Captioner, EncoderDecoder) and not methods - {"Config"}


@torch.no_grad()
@pytest.mark.parametrize("preset", [modern_captioner, vit])
def test_it_is_a_vit_and_a_translator_put_together_by_hand(preset, images):
    """Vectors of a VisionTransformer with these weights, and the decoder of a text translator with
    these weights that is told to look at them.
    """
    model, tokenizer = make_captioner(preset, images)
    config = model.config
    seeing = VisionTransformer(config.source_vocab, config.encoder).eval()
    seeing.encoder.load_state_dict(model.encoder.state_dict())
    names = [f.name for f in dataclasses.fields(TransformerConfig)]
    shared = {name: getattr(config, name) for name in names}
    text = EncoderDecoder(WORDS, EncoderDecoderConfig(**shared)).eval()
    text.decoder.load_state_dict(model.decoder.state_dict())
    source = batch_of(images, tokenizer)
    vectors = seeing.vectors(source)
    seen = Rendered((source.segments > 0)[:, None, None], False)
    memory = [block.cross.memory(vectors, seen) for block in text.decoder.blocks]
    ids = torch.randint(WORDS, (len(images), 7), generator=torch.Generator().manual_seed(2))
    tap, other = Tap(["*cross.weights"]), Tap(["*cross.weights"])
    expected = text.head(text.decoder.hidden(ids, memory=memory, tap=tap))
    given = model.condition(source)
    found = given.logits(ids, tap=other)
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()
    pairs = zip(other.activations.values(), tap.activations.values(), strict=True)
    assert all((x - y).abs().max() <= 1e-5 for x, y in pairs)
    weights = next(iter(other.activations.values()))  # (B, H, T, S): nothing is seen of padding
    assert not weights.masked_select(source.segments[:, None, None] == 0).any()


@torch.no_grad()
@pytest.mark.parametrize("positions", ["rotary", "learned", "sinusoidal", "none"])
def test_padding_a_batch_of_images_changes_no_word(positions, images):
    model, tokenizer = make_captioner(modern_captioner, images, image_positions=positions)
    model.double()  # it looks so hard that single precision's rounding would be seen
    ids = torch.randint(WORDS, (1, 6), generator=torch.Generator().manual_seed(3))
    rows = ids.expand(len(images), -1)
    together = model.condition(batch_of(images, tokenizer, 5)).logits(rows)
    alone = torch.cat([model.condition(batch_of([p], tokenizer)).logits(ids) for p in images])
    assert (together - alone).abs().max() <= 1e-10 * alone.abs().max()
    assert (alone[0] - alone[1]).abs().max() > 1e-2  # and images make a difference


@torch.no_grad()
def test_training_without_a_mask_is_training_with_one(images):
    model, tokenizer = make_captioner(modern_captioner, images[:2])
    assert model.encoder.config.never_padded and not model.supports_packing
    source = batch_of(images[:2], tokenizer)
    ids = torch.randint(WORDS, (2, 6), generator=torch.Generator().manual_seed(3))
    expected = model(ids, None, source)
    assert (model.train()(ids, None, source) - expected).abs().max() <= 1e-5


@torch.no_grad()
def test_a_wide_beam_finds_the_most_probable_caption_of_all(images):
    words, longest, start, end = 5, 3, 0, 1
    model, tokenizer = make_captioner(modern_captioner, images, words=words)
    sources = [tokenizer.encode_batch([p])[0] for p in images]
    beam = Beam(width=words**longest, length_penalty=0.0, n_best=1)
    found = translate(model, sources, beam, start=start, end=end, max_new=longest)
    for image, (best,) in zip(images, found, strict=True):
        given = model.condition(batch_of([image], tokenizer))
        tried = []
        for n in range(longest):
            for body in itertools.product([w for w in range(words) if w != end], repeat=n):
                ids = torch.tensor([[start, *body]])
                targets = torch.tensor([[*body, end]])
                tried.append((float(given.score(ids, targets).sum()), [*body, end]))
        log, ids = max(tried)
        assert list(best.ids) == ids and abs(sum(best.log_probs) - log) <= 1e-4


def test_images_are_augmented_in_training_alone(images):
    model, tokenizer = make_captioner(modern_captioner, images[:2])

    class Painted(nn.Module):
        def forward(self, ids, segments):
            return (ids.clone().fill_(0) if self.training else ids), segments

    asked = NextTokenObjective(model, augment=Painted(), r_drop=1.0)
    source = batch_of(images[:2], tokenizer)
    ids = torch.randint(WORDS, (2, 6), generator=torch.Generator().manual_seed(3))
    tensors = ids, ids.roll(-1, 1), None, source.ids, source.segments
    plain = asked.eval()(*tensors)[1]
    changed = asked.train()(*tensors)[1]
    expected = NextTokenObjective(model.train())(*tensors[:3], source.ids * 0, source.segments)[1]
    assert abs(float(changed - expected)) <= 1e-4 and abs(float(plain - changed)) > 1e-3


def test_what_it_cannot_be_is_said():
    with pytest.raises(ValueError, match="image_positions are learned, sinusoidal, rotary, none"):
        CaptionerConfig(image_positions="alibi")
    with pytest.raises(ValueError, match="n_encoder_layers must be from 1"):
        CaptionerConfig(n_encoder_layers=0)
