"""A captioner is a ViT's encoder and a translator's decoder, and nothing else."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from regard.decoding import Beam
from regard.decoding.seq2seq import translate
from regard.layers.attention import Tap
from regard.layers.embeddings import Inputs
from regard.layers.masks import Rendered
from regard.models.encoder_decoder import (
    Captioner,
    CaptionerConfig,
    EncoderDecoder,
    EncoderDecoderConfig,
    modern_captioner,
    vit,
)
from regard.models.transformer import TransformerConfig
from regard.models.vision import VisionTransformer
from regard.tokenizers import Patches
from regard.training.augmentation import ImageAugment
from regard.training.objectives import NextTokenObjective

SIZES = ((9, 13), (9, 13), (5, 6), (12, 4))
WORDS = 11


@pytest.fixture(scope="module")
def pictures():
    random = np.random.default_rng(0)
    return [random.integers(0, 256, (*size, 3), dtype=np.uint8) for size in SIZES]


def made(preset, pictures, words=WORDS, **more):
    tokenizer = Patches.train(pictures, patch=4)
    torch.manual_seed(0)
    own = {"source_vocab": tokenizer.vocab_size, "max_len": 12, "dropout": 0.0, **tokenizer.decides}
    model = Captioner(words, dataclasses.replace(preset(2, 32), **own, **more)).eval()
    with torch.no_grad():
        for block in model.decoder.blocks:  # so that it looks hard at what it is shown
            block.cross.q.weight *= 8
            block.cross.out.weight *= 12
    return model, tokenizer


def beside(pictures, tokenizer, more=0):
    """Pictures in rows of one length, anything in what is no picture."""
    tokens = [torch.from_numpy(tokenizer.encode_batch([p])[0]) for p in pictures]
    width = max(map(len, tokens)) + more
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(256, (len(tokens), width, tokenizer.vocab_size), generator=generator)
    segments = torch.zeros(len(tokens), width, dtype=torch.long)
    for i, own in enumerate(tokens):
        ids[i, : len(own)], segments[i, : len(own)] = own.long(), 1
    return Inputs(ids.to(torch.uint8), segments)


def test_it_has_no_code_of_its_own():
    own = {k for k, v in vars(Captioner).items() if callable(v) and not k.startswith("_")}
    assert issubclass(Captioner, EncoderDecoder) and not own - {"Config"}


@torch.no_grad()
@pytest.mark.parametrize("preset", [modern_captioner, vit])
def test_it_is_a_vit_and_a_translator_put_together_by_hand(preset, pictures):
    """Vectors of a VisionTransformer with these weights, and the decoder of a text translator with
    these weights that is told to look at them.
    """
    model, tokenizer = made(preset, pictures)
    config = model.config
    seeing = VisionTransformer(config.source_vocab, config.reading).eval()
    seeing.encoder.load_state_dict(model.encoder.state_dict())
    names = [f.name for f in dataclasses.fields(TransformerConfig)]
    shared = {name: getattr(config, name) for name in names}
    text = EncoderDecoder(WORDS, EncoderDecoderConfig(**shared)).eval()
    text.decoder.load_state_dict(model.decoder.state_dict())
    source = beside(pictures, tokenizer)
    vectors = seeing.vectors(source)
    seen = Rendered((source.segments > 0)[:, None, None], False)
    memory = [block.cross.memory(vectors, seen) for block in text.decoder.blocks]
    ids = torch.randint(WORDS, (len(pictures), 7), generator=torch.Generator().manual_seed(2))
    tap, other = Tap(["*cross.weights"]), Tap(["*cross.weights"])
    expected = text.head(text.decoder.hidden(ids, memory=memory, tap=tap))
    given = model.condition(source)
    found = given.logits(ids, tap=other)
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()
    pairs = zip(other.found.values(), tap.found.values(), strict=True)
    assert all((x - y).abs().max() <= 1e-5 for x, y in pairs)
    weights = next(iter(other.found.values()))  # (B, H, T, S): nothing is seen of padding
    assert not weights.masked_select(source.segments[:, None, None] == 0).any()


@torch.no_grad()
@pytest.mark.parametrize("positions", ["rotary", "learned", "sinusoidal", "none"])
def test_padding_a_batch_of_pictures_changes_no_word(positions, pictures):
    model, tokenizer = made(modern_captioner, pictures, picture_positions=positions)
    model.double()  # it looks so hard that single precision's rounding would be seen
    ids = torch.randint(WORDS, (1, 6), generator=torch.Generator().manual_seed(3))
    rows = ids.expand(len(pictures), -1)
    together = model.condition(beside(pictures, tokenizer, 5)).logits(rows)
    alone = torch.cat([model.condition(beside([p], tokenizer)).logits(ids) for p in pictures])
    assert (together - alone).abs().max() <= 1e-10 * alone.abs().max()
    assert (alone[0] - alone[1]).abs().max() > 1e-2  # and pictures make a difference


@torch.no_grad()
def test_training_without_a_mask_is_training_with_one(pictures):
    model, tokenizer = made(modern_captioner, pictures[:2])
    assert model.encoder.config.never_padded and not model.supports_packing
    source = beside(pictures[:2], tokenizer)
    ids = torch.randint(WORDS, (2, 6), generator=torch.Generator().manual_seed(3))
    expected = model(ids, None, source)
    assert (model.train()(ids, None, source) - expected).abs().max() <= 1e-5


@torch.no_grad()
def test_a_wide_beam_finds_the_most_probable_caption_of_all(pictures):
    words, longest, start, end = 5, 3, 0, 1
    model, tokenizer = made(modern_captioner, pictures, words=words)
    sources = [tokenizer.encode_batch([p])[0] for p in pictures]
    beam = Beam(width=words**longest, length_penalty=0.0, n_best=1)
    found = translate(model, sources, beam, start=start, end=end, max_new=longest)
    for picture, (best,) in zip(pictures, found, strict=True):
        given = model.condition(beside([picture], tokenizer))
        tried = []
        for n in range(longest):
            for body in itertools.product([w for w in range(words) if w != end], repeat=n):
                ids = torch.tensor([[start, *body]])
                targets = torch.tensor([[*body, end]])
                tried.append((float(given.score(ids, targets).sum()), [*body, end]))
        log, ids = max(tried)
        assert list(best.ids) == ids and abs(sum(best.log_probs) - log) <= 1e-4


def test_changes_are_made_to_pictures_in_training_alone(pictures):
    model, tokenizer = made(modern_captioner, pictures[:2])

    class Painted(ImageAugment):
        def __init__(self):
            torch.nn.Module.__init__(self)

        def forward(self, ids, segments):
            return (ids.clone().fill_(0) if self.training else ids), segments

    asked = NextTokenObjective(model, changes=Painted(), consistency=1.0)
    source = beside(pictures[:2], tokenizer)
    ids = torch.randint(WORDS, (2, 6), generator=torch.Generator().manual_seed(3))
    tensors = ids, ids.roll(-1, 1), None, source.ids, source.segments
    plain = asked.eval()(*tensors)[1]
    changed = asked.train()(*tensors)[1]
    expected = NextTokenObjective(model.train())(*tensors[:3], source.ids * 0, source.segments)[1]
    assert abs(float(changed - expected)) <= 1e-4 and abs(float(plain - changed)) > 1e-3


def test_what_it_cannot_be_is_said():
    with pytest.raises(ValueError, match="picture_positions are learned, sinusoidal, rotary, none"):
        CaptionerConfig(picture_positions="alibi")
    with pytest.raises(ValueError, match="n_encoder_layers must be from 1"):
        CaptionerConfig(n_encoder_layers=0)
