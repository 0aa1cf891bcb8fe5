"""Models in Node against Python with the same rounded weights, for every family of live pages."""

from __future__ import annotations

import dataclasses
from functools import partial

import numpy as np
import pytest
import torch
from live_scripts import packed, read_texts, run_script

from regard.errors import UserError
from regard.evaluation.eval_data import shard_of
from regard.layers.embeddings import Inputs
from regard.layers.tap import Edit, Tap
from regard.live.parts import live_part
from regard.models import decoder, encoder, hyena, linear, ngrams, vision
from regard.models.mlp import MLP
from regard.models.recurrent import GRUModel, LSTMModel, RecurrentConfig, RNNModel
from regard.tokenizers import Characters, Patches

RECORDS = ["abba", "cab", "bac", "abc", "baab", "cabbac", "acc"]
TOKENIZER = Characters.train(RECORDS)
SIZE, LONGEST = TOKENIZER.vocab_size, 24
START = TOKENIZER.start
CLOSE = 1e-4


def random_texts(count, size=SIZE, seed=0):
    """Return texts of various lengths, <S> first."""
    random = np.random.default_rng(seed)
    lengths = random.integers(0, LONGEST - 1, count)
    return [[START, *random.integers(3, size, length).tolist()] for length in lengths]


def small(config, **settings):
    return dataclasses.replace(config, max_len=LONGEST, **settings)


def causal(make=decoder.modern, cls=decoder.Decoder, **settings):
    torch.manual_seed(0)
    shape = {"n_heads": 4, "n_kv_heads": 2, "d_head": 6, "d_ff": 20, **settings}
    return cls(SIZE, small(make(2, 24), **shape)).eval()


def recurrent(cls):
    torch.manual_seed(0)
    return cls(SIZE, RecurrentConfig(n_layers=2, d_model=20)).eval()


def counted(cls, config):
    model = cls(SIZE, config)
    model.fit(shard_of(RECORDS, TOKENIZER), None, print)
    return model


def classifier(make=encoder.modern, cls=encoder.EncoderModel, **settings):
    torch.manual_seed(0)
    shape = {"n_heads": 2, "n_kv_heads": 2, "d_head": 12, "d_ff": 20, "n_outputs": 3, **settings}
    return cls(SIZE, small(make(2, 24), **shape)).eval()


def image_model(make=vision.modern, **settings):
    torch.manual_seed(0)
    shape = {"n_heads": 2, "n_kv_heads": 2, "d_head": 12, "d_ff": 20, "n_outputs": 4, **settings}
    config = dataclasses.replace(make(2, 24), patch=2, rows=3, columns=4, **shape)
    model = vision.VisionTransformer(2 + 4, config).eval()
    with torch.no_grad():  # positions and biases are not zero once trained
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


LANGUAGE_MODELS = {
    "uniform": lambda: counted(ngrams.Uniform, ngrams.CountConfig()),
    "unigram": lambda: counted(ngrams.Unigram, ngrams.CountConfig()),
    "bigram": lambda: counted(ngrams.Bigram, ngrams.CountConfig()),
    "kneser-ney": lambda: counted(ngrams.KneserNey, ngrams.KneserNeyConfig(order=4)),
    "map": lambda: counted(ngrams.DirichletNGram, ngrams.DirichletNGramConfig(order=3)),
    "map, mean, symmetric": lambda: counted(
        ngrams.DirichletNGram,
        ngrams.DirichletNGramConfig(order=3, prior="symmetric", estimate="mean"),
    ),
    "rnn": lambda: recurrent(RNNModel),
    "gru": lambda: recurrent(GRUModel),
    "lstm": lambda: recurrent(LSTMModel),
    "hyena": lambda: causal(hyena.hyena, hyena.HyenaModel),
    "hyena, order 3": lambda: causal(hyena.hyena, hyena.HyenaModel, order=3),
    "striped": lambda: causal(hyena.striped, hyena.HyenaModel, n_layers=3),
    "modern": causal,
    "llama": lambda: causal(decoder.llama),
    "gpt2": lambda: causal(decoder.gpt2),
    "vaswani": lambda: causal(decoder.vaswani),
    "alibi, window": lambda: causal(positions="alibi", window=3, global_tokens=1),
    "t5, distance": lambda: causal(positions="t5", score="negative_distance"),
    "binary, log distance": lambda: causal(positions="binary", score="negative_log_distance"),
    "relu2, no norm": lambda: causal(feedforward="relu2", norm="none", score="dot"),
}
CLASSIFIERS = {
    "modern": classifier,
    "bert": lambda: classifier(encoder.bert),
    "attention pooling": lambda: classifier(pooling="attention", positions="t5"),
    "max pooling": lambda: classifier(pooling="max", positions="sinusoidal"),
    "sum pooling": lambda: classifier(pooling="sum", positions="alibi"),
    "hyena": lambda: classifier(hyena.hyena_encoder, hyena.HyenaClassifier),
}


def pixel_model():
    config = linear.PixelConfig(
        patch=2, rows=3, columns=4, n_outputs=4, mean=(0.3,), deviation=(0.2,)
    )
    model = linear.PixelLogistic(2 + 4, config)
    model.coefficients, model.bias = torch.randn(48, 4), torch.randn(4)
    return model


IMAGE_MODELS = {
    "pixels": pixel_model,
    "modern": image_model,
    "vit": lambda: image_model(vision.vit),
    "sinusoidal": lambda: image_model(positions="sinusoidal"),
}


def fitted(cls, config, positions=False):
    """Return a linear classifier with random coefficients over the n-grams of random texts."""
    model = cls(SIZE, config(task="label", n_outputs=3, max_len=LONGEST, order=3))
    texts = torch.tensor([(ids * LONGEST)[:LONGEST] for ids in random_texts(8, seed=1)])
    model.markers = torch.tensor([START, TOKENIZER.end])
    source = Inputs(texts, texts > 0)
    _, codes = model.list_ngrams(source, 3, model.config.n_positions)
    model.codes = codes.unique()
    count, draw = len(model.codes), torch.Generator().manual_seed(0)
    model.idf = 1 + torch.rand(count, generator=draw, dtype=torch.float64)
    model.coefficients = torch.randn(count, 3, generator=draw, dtype=torch.float64)
    model.bias = torch.randn(3, generator=draw, dtype=torch.float64)
    return model


LINEAR = {
    "counts": lambda: fitted(linear.Logistic, partial(linear.LinearConfig, weighting="counts")),
    "tf-idf": lambda: fitted(linear.LinearSvm, partial(linear.LinearConfig, weighting="tf-idf")),
    "binary": lambda: fitted(linear.NbSvm, linear.NbSvmConfig),
    "log-posteriors": lambda: fitted(linear.NaiveBayes, linear.NaiveBayesConfig),
    "at each place": lambda: fitted(linear.NbSvm, partial(linear.NbSvmConfig, places="each")),
}
CLASSIFIERS |= LINEAR


def as_numbers(rows):
    return np.array([[float(x) for x in row] for row in rows])


def assert_close(ours, theirs):
    """Compare logits; where one is infinite, the other must be."""
    assert np.array_equal(np.isfinite(ours), np.isfinite(theirs))
    finite = np.isfinite(ours)
    assert np.abs(ours[finite] - theirs[finite]).max() <= CLOSE


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
@torch.inference_mode()
def test_logits_of_language_models_equal_those_of_python(name):
    rounded, part, given = packed(LANGUAGE_MODELS[name]())
    texts = random_texts(12)
    for ids, got in zip(texts, read_texts(part, given, [{"ids": i} for i in texts]), strict=True):
        assert_close(as_numbers(got["logits"]), rounded.logits(torch.tensor([ids]))[0].numpy())


@pytest.mark.parametrize("name", CLASSIFIERS)
@torch.inference_mode()
def test_scores_of_classifiers_equal_those_of_python(name):
    rounded, part, given = packed(CLASSIFIERS[name](), bits=16)
    texts = [[*ids, TOKENIZER.end] for ids in random_texts(8)]
    for ids, got in zip(texts, read_texts(part, given, [{"ids": i} for i in texts]), strict=True):
        row = torch.tensor([ids])
        assert_close(as_numbers(got["logits"]), rounded.predict(Inputs(row, row > 0)).numpy())


PIXELS = """
const size = { width: 8, height: 6, patch: 2 };
const model = programs[given.program](given.config, openTensors(given.tensors));
const session = makeSession(model);
return given.images.map((pixels) => {
  session.read(cutPatches(pixels, size));
  return Array.from(session.logits(0));
});
"""


@pytest.mark.parametrize("name", IMAGE_MODELS)
@torch.inference_mode()
def test_scores_of_images_equal_those_of_python(name):
    rounded, part, given = packed(IMAGE_MODELS[name]())
    images = np.random.default_rng(0).integers(0, 256, (5, 6, 8, 1), dtype=np.uint8)
    ids, _ = Patches(2, 6, 8, [0.5], [0.5]).encode_batch(list(images))
    ids = torch.from_numpy(ids).view(5, -1, 6)
    wanted = rounded.predict(Inputs(ids, torch.ones(ids.shape[:2], dtype=torch.long))).numpy()
    scripts = [*part.scripts, ("regard.live", "drawing.js")]
    given["images"] = [image.ravel().tolist() for image in images]
    assert_close(np.array(run_script(scripts, PIXELS, given)), wanted)


@pytest.mark.parametrize("name", ["modern", "lstm", "hyena", "kneser-ney"])
def test_only_what_follows_a_change_is_computed(name):
    """Typing at the end computes one position; the same text none; logits are as from the start."""
    _, part, given = packed(LANGUAGE_MODELS[name]())
    texts = [[START, 4, 5], [START, 4, 5, 6], [START, 4, 5, 6], [START, 4, 6, 6], [START, 4]]
    body = """
    const model = programs[given.program](given.config, openTensors(given.tensors));
    const [kept, fresh] = [makeSession(model), () => makeSession(model)];
    return given.texts.map((ids) => {
      const [count, other] = [kept.read(ids), fresh()];
      other.read(ids);
      const [ours, theirs] = [kept, other].map((session) => session.logits(ids.length - 1));
      return [count, Math.max(...ours.map((x, i) => Math.abs(x - theirs[i]) || 0))];
    });
    """
    counts, gaps = zip(*read_texts(part, given, texts, body), strict=True)
    assert counts == (3, 1, 0, 2, 0)
    assert max(gaps) <= 1e-5


def edit_of(name, position, first, count, values=None):
    """An edit as the scripts take it."""
    fields = ("name", "position", "first", "count", "values")
    return dict(zip(fields, (name, position, first, count, values), strict=True))


@torch.inference_mode()
def test_edits_do_what_those_of_a_tap_do():
    """A head switched off, a residual stream patched, a head patched at one position."""
    rounded, part, given = packed(causal())
    ids, patch = random_texts(6)[3], torch.randn(24).tolist()
    row, everywhere = torch.tensor([ids]), slice(None)
    cases = [
        (
            edit_of("block.1.attention.heads", None, 12, 6),
            Edit.zero("block.1.attention.heads", (everywhere, 2)),
        ),
        (
            edit_of("block.0.output", 2, 0, 24, patch),
            Edit.replace("block.0.output", torch.tensor(patch), (everywhere, 2)),
        ),
        (
            edit_of("block.0.attention.heads", 1, 6, 6, patch[:6]),
            Edit.replace("block.0.attention.heads", torch.tensor(patch[:6]), (everywhere, 1, 1)),
        ),
    ]
    plain = rounded.logits(row)[0].numpy()
    got = read_texts(part, given, [{"ids": ids, "edits": [edit]} for edit, _ in cases])
    for (_, edit), logits in zip(cases, got, strict=True):
        wanted = rounded.logits(row, tap=Tap(edits=[edit]))[0].numpy()
        assert_close(as_numbers(logits["logits"]), wanted)
        assert np.abs(wanted - plain).max() > 0.01


@torch.inference_mode()
def test_activations_have_the_names_and_values_of_a_tap():
    rounded, part, given = packed(causal())
    ids = random_texts(6)[3]
    tap = Tap(["*"])
    rounded.logits(torch.tensor([ids]), tap=tap)
    body = """
    const session = makeSession(programs[given.program](given.config, openTensors(given.tensors)));
    session.read(given.texts);
    const count = given.texts.length;
    return Object.fromEntries(session.trace.names().map((name) => {
      const rows = session.trace.get(name);
      if (rows) return [name, Array.from(rows.data.subarray(0, count * rows.width))];
      return [name, session.trace.list(name).at(-1).length];
    }));
    """
    got = read_texts(part, given, ids, body)
    names = {name for name in tap.activations if not name.endswith(("scores", "weights"))}
    assert names <= set(got)
    for name in names:
        wanted = tap.activations[name][0]
        if wanted.dim() == 3:  # (H, T, K): the heads of a position stand in one row
            wanted = wanted.transpose(0, 1)
        assert np.abs(np.array(got[name]) - wanted.flatten().numpy()).max() <= CLOSE, name
    assert got["block.1.attention.weights"] == 4 * len(ids)


@pytest.mark.parametrize("name", LINEAR)
def test_evidence_adds_up_to_the_score(name):
    """What tokens add to the score of a class is all of it but the bias."""
    rounded, part, given = packed(LINEAR[name](), bits=16)
    texts = [[*ids, TOKENIZER.end] for ids in random_texts(6)]
    body = """
    const model = programs[given.program](given.config, openTensors(given.tensors));
    const total = (ids, o) => model.evidence(ids, o).reduce((a, b) => a + b, 0);
    return given.texts.map((ids) => [0, 1, 2].map((o) => total(ids, o)));
    """
    for ids, got in zip(texts, read_texts(part, given, texts, body), strict=True):
        row = torch.tensor([ids])
        features = rounded.features(Inputs(row, row > 0))
        wanted = linear.multiply(features, rounded.coefficients)[0]
        assert got == pytest.approx(wanted.tolist(), abs=CLOSE)


def test_what_no_script_implements_is_refused_in_one_line():
    with pytest.raises(UserError, match=r"score = scaled_dot.*has 'cosine'"):
        live_part(causal(score="cosine"))
    with pytest.raises(UserError, match=r"mixers attention, window, hyena; this model has linear"):
        live_part(causal(mixers=("linear",), qk_norm=False, n_kv_heads=4))
    with pytest.raises(UserError, match="do not support MLP"):
        live_part(MLP(SIZE, next(iter(MLP.PRESETS.values()))(1, 8)))
