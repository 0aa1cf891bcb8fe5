"""Pages about captions: maps that say what they promise."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from regard.look.caption_page import caption_page, covered_bits, cross_attention
from regard.look.decoding_views import SourceTarget, search, trace_targets
from regard.look.figures import save
from regard.look.item_maps import maps_over
from regard.look.page import ImageMaps
from regard.models.encoder_decoder import Captioner, modern_captioner
from regard.pipelines.translator import Translator
from regard.registry import TOKENIZERS
from regard.tokenizers import Patches

IMAGE = np.random.default_rng(0).integers(0, 256, (8, 12, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def translator():
    words, patches = TOKENIZERS["words"].train(["a b c d e"]), Patches.train([IMAGE], patch=4)
    torch.manual_seed(0)
    shape = {
        "source_vocab": patches.vocab_size,
        "max_len": 8,
        "dropout": 0.0,
        **patches.model_config,
    }
    shape |= {"n_heads": 2, "n_kv_heads": 2, "d_head": 16}
    model = Captioner(
        words.vocab_size, dataclasses.replace(modern_captioner(2, 32), **shape)
    ).eval()
    with torch.no_grad():
        for block in model.decoder.blocks:
            block.cross.out.weight *= 6
        # a patch of the mean colour is nothing but the bias: a norm of zeros would be anywhere
        torch.nn.init.normal_(model.encoder.embedding.project.bias)
    return Translator(model, words, patches)


def trace_caption(translator, text):
    tokens = translator.source_tokenizer.encode_batch([IMAGE])[0]
    pair = SourceTarget(tokens, translator.tokenizer.encode(text).tolist())
    (trace,) = trace_targets(translator, pair, search(translator, tokens, 2)).values()
    return pair, trace


def test_covering_a_patch_is_painting_it_over_and_scoring_again(translator):
    tokenizer = translator.source_tokenizer
    pair, trace = trace_caption(translator, "b a c")
    bits = covered_bits(trace, maps_over(tokenizer, pair.source))
    assert bits.shape == (4, 6)  # three words and <E>, 2 × 3 patches
    painted = IMAGE.copy()
    painted[4:8, 8:12] = np.round(255 * np.array(tokenizer.mean))  # row 2, column 3
    one, two = translator.score([(IMAGE, "b a c"), (painted, "b a c")])
    expected = (np.array(one.log_probs) - np.array(two.log_probs)) / math.log(2)
    assert np.abs(bits[:, 5].numpy() - expected).max() < 0.02  # of half a byte's rounding
    assert np.abs(expected).max() > 0.05


def test_the_page_has_a_map_for_every_word(translator, tmp_path):
    pair, trace = trace_caption(translator, "b a c")
    weights = cross_attention(trace)
    assert weights.shape == (2, 2, 4, 7) and (weights.sum(-1) - 1).abs().max() < 1e-5
    page = caption_page(translator, pair, title="t", facts=[("model", "x")], beams=2)
    first, second, heads, *_ = [c for c in page.components if isinstance(c, ImageMaps)]
    assert list(first.names) == ["b", "a", "c", "<E>"] == list(second.columns)
    assert np.allclose(first.array()[:, 0], weights.mean((0, 1))[:, 1:], atol=1e-6)
    assert heads.array().shape == (2 * 2 * 4, 1, 6)
    assert heads.names[5] == "a: layer 1, head 2"
    assert save([first], tmp_path / "page.png").stat().st_size > 5_000
