"""Small models of every family that can be stepped through, as pipelines of one input."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from small_models import RECORDS, TOKENIZER, decoder, record

from regard.data.windows import Windows
from regard.evaluation.eval_data import shard_of
from regard.layers.embeddings import Inputs
from regard.models import (
    class_counts,
    contrastive,
    hyena,
    linear,
    mlp,
    point_transformer,
    recurrent,
    series_classifiers,
    series_features,
    vision,
)
from regard.models import encoder as encoders
from regard.models.classical_forecasters import (
    Boosting,
    Drift,
    ExponentialSmoothing,
    Naive,
    RidgeLags,
    SeasonalNaive,
)
from regard.models.convolution import CNN, ConvolutionalClassifier, ConvolutionConfig
from regard.models.coulomb import Coulomb
from regard.models.decoder import DecoderConfig
from regard.models.encoder_decoder import (
    Captioner,
    EncoderDecoder,
    EncoderDecoderConfig,
    modern_captioner,
    vaswani,
)
from regard.models.forecaster import DLinear, NLinear
from regard.models.hidden_markov import HiddenMarkov, HiddenMarkovConfig
from regard.models.ibm_model1 import IBM1Config, IBM1Translator
from regard.models.nearest_caption import NearestCaptioner, NearestConfig
from regard.models.ngrams import (
    Bigram,
    CountConfig,
    DirichletNGram,
    DirichletNGramConfig,
    KneserNey,
    KneserNeyConfig,
    Uniform,
    Unigram,
)
from regard.models.patch_forecaster import (
    ConvolutionalForecaster,
    DecoderForecaster,
    HyenaForecaster,
    PatchForecastConfig,
    PatchForecaster,
    RecurrentForecastConfig,
    RecurrentForecaster,
)
from regard.models.word2vec import CBOW, SkipGram, Word2VecConfig
from regard.pipelines import PreparedInput
from regard.tokenizers import Patches, Points
from regard.tokenizers.points import NO_ATOMS, PointCloud
from regard.tokenizers.step_patches import StepPatches

V = TOKENIZER.vocab_size
TEXT = "abbac"
TEXTS = ["abbacabbaba", *RECORDS, "ccab", "cca"]
SHAPE = {"n_layers": 2, "d_model": 12, "n_heads": 3, "n_kv_heads": 3, "d_head": 4, "d_ff": 10}
SHAPE |= {"max_len": 24}
UNITS = SimpleNamespace(mean=np.array([50.0, 0.0]), deviation=np.array([20.0, 1.0]))
CLASSES = SimpleNamespace(names=["letter"], classes=[["p", "q", "r"]])
LABELS = SimpleNamespace(names=["one", "two"], classes=[["0", "1"], ["0", "1"]])


class Reader:
    """A pipeline that reads one input, whatever it is asked for."""

    def __init__(self, model, tensors, run, targets=None, tokenizer=TOKENIZER):
        self.model, self.prepared, self.targets = model, PreparedInput(tensors, run), targets
        self.tokenizer = self.source_tokenizer = tokenizer

    def prepare(self, item="", target="", record=0):
        return self.prepared


def shaken(model):
    """Move parameters away from values such as 0 and 1, which would hide a mistake."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def language_model(model, text=TEXT):
    ids = torch.tensor([record(text)])
    return Reader(model, {"ids": ids}, lambda tap: model.logits(ids, tap=tap))


def changed_decoder(**options):
    return lambda: language_model(shaken(decoder(max_len=24, **options)))


def hyena_model(order, *mixers):
    config = DecoderConfig(**SHAPE, mixers=mixers, order=order, positions="none")
    return language_model(shaken(hyena.HyenaModel(V, config)))


def recurrent_model(family):
    config = recurrent.RecurrentConfig(n_layers=2, d_model=7)
    return language_model(shaken(family(V, config)))


def window_model(config):
    return language_model(shaken(mlp.MLP(V, config)))


def convolution(preset):
    config = dataclasses.replace(CNN.PRESETS[preset](3, 8), kernel=3)
    return language_model(shaken(CNN(V, config)))


def recurrent_classifier():
    config = recurrent.SequenceClassifierConfig(n_layers=2, d_model=6, n_outputs=3)
    return predictor(recurrent.RecurrentClassifier(V, config))


def counted(family, config):
    model = family(V, config)
    model.fit(shard_of(["abbacabbaba", *RECORDS], TOKENIZER), None, print)
    return language_model(model)


def hidden_markov():
    torch.manual_seed(0)
    model = HiddenMarkov(V, HiddenMarkovConfig(n_states=5))
    model.marker.fill_(TOKENIZER.start)
    return language_model(model)


def translator(model, source=None):
    torch.manual_seed(2)
    source = torch.randint(3, V, (1, 7)) if source is None else source
    ids, shaken_model = torch.tensor([record("abb")]), shaken(model)
    inputs = Inputs(source, torch.ones(source.shape[:2], dtype=torch.int64))
    conditioned = shaken_model.condition(inputs)

    def run(tap):
        conditioned.set_source(inputs, tap=tap)
        return conditioned.logits(ids, tap=tap)

    return Reader(model, {"source": source, "ids": ids}, run)


def captioner():
    shape = {"patch": 2, "rows": 2, "columns": 3, "source_vocab": 6, "max_len": 24}
    config = dataclasses.replace(modern_captioner(1, 16), **shape)
    return translator(Captioner(V, config), pixels(config))


def word_for_word():
    """Fit IBM model 1 to texts and the same texts with other letters, backwards."""
    config = IBM1Config(max_len=24, iterations=4, source_vocab=V, decay=0.6)
    model = IBM1Translator(V, config)
    letters = str.maketrans("abc", "bca")
    targets = [text.translate(letters) for text in TEXTS]
    model.fit(shard_of(targets, TOKENIZER).paired(shard_of(TEXTS, TOKENIZER)), None, print)
    return translator(model, torch.tensor([[*record("abca")[1:], TOKENIZER.end]]))


def word_vectors(family, **options):
    """Return vectors of six words, the third one being read."""
    torch.manual_seed(3)
    model = family(V, Word2VecConfig(n_words=6, d_model=5, **options))
    torch.nn.init.normal_(model.inputs)
    torch.nn.init.normal_(model.outputs)
    vectors = model.inputs.detach().numpy()
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    found = torch.from_numpy(unit @ unit[2])[None]
    reader = Reader(model, {"rows": torch.tensor([[2]])}, lambda tap: found)
    reader.words, reader.unit = ["the", "a", "cat", "dog", "sat", "ran"], unit
    return reader


def matched(model, source=None):
    """Read a source and a text."""
    ids = torch.tensor([[*record("abb"), TOKENIZER.end]])
    source = torch.tensor([[*record("ccab"), TOKENIZER.end]]) if source is None else source
    inputs = [Inputs(x, torch.ones(x.shape[:2], dtype=torch.int64)) for x in (source, ids)]

    def run(tap):
        one = model.embed_sources(inputs[0], tap=tap)
        return (one * model.embed_texts(inputs[1], tap=tap)).sum(-1, keepdim=True)

    return Reader(model, {"source": source, "ids": ids}, run)


def correlated():
    """Fit canonical correlations to texts and their beginnings."""
    model = contrastive.TokenCorrelation(V, contrastive.CorrelationConfig(max_len=24))
    starts = [text[:2] for text in TEXTS]
    model.fit(shard_of(starts, TOKENIZER).paired(shard_of(TEXTS, TOKENIZER)), None, print)
    return matched(model)


def colors():
    """Return random directions of the colors of an image."""
    config = contrastive.CorrelationConfig(patch=2, rows=2, columns=3, bins=3, max_len=24)
    torch.manual_seed(0)
    model = contrastive.ColorCorrelation(V, config)
    model.tokens = torch.tensor([4, 5])
    model.source_map, model.text_map = torch.randn(1 + 3, 4).double(), torch.randn(3, 4).double()
    return matched(model, pixels(config))


def dual_encoder():
    config = contrastive.DualEncoderConfig(**SHAPE, n_encoder_layers=1, d_embedding=5)
    return matched(shaken(contrastive.DualEncoder(V, config)))


def image_text_encoder():
    shape = {"patch": 2, "rows": 2, "columns": 3, "source_vocab": 6, "max_len": 24}
    config = contrastive.of_images(dataclasses.replace(modern_captioner(1, 16), **shape))
    return matched(shaken(contrastive.ImageTextEncoder(V, config)), pixels(config))


def nearest_captioner():
    """Fit to six images of two by three patches."""
    config = NearestConfig(patch=2, rows=2, columns=3, source_vocab=6, max_len=24)
    model = NearestCaptioner(V, config)
    images = np.random.default_rng(0).integers(0, 256, (6, 4, 6, 1), dtype=np.uint8)
    patches = Patches.train(images, patch=2)
    pairs = shard_of(TEXTS[:6], TOKENIZER).paired(shard_of(list(images), patches))
    model.fit(pairs, None, print)
    ids = torch.from_numpy(patches.encode_batch([images[4] // 2 + 60])[0])[None].float()
    return translator(model, ids)


def predictor(model, ids=None, targets=CLASSES):
    ids, model = torch.tensor([record(TEXT)]) if ids is None else ids, shaken(model)
    source = Inputs(ids, torch.ones(ids.shape[:2], dtype=torch.int64))
    return Reader(model, {"ids": ids}, lambda tap: model.predict(source, tap=tap), targets)


def encoder(task="label", n_outputs=3, targets=CLASSES, **options):
    config = encoders.EncoderConfig(**SHAPE | options, task=task, n_outputs=n_outputs)
    return predictor(encoders.EncoderModel(V, config), targets=targets)


def bert():
    config = dataclasses.replace(encoders.bert(1, 12), n_outputs=3, max_len=24)
    return predictor(encoders.EncoderModel(V, config))


def masked(make):
    return predictor(encoders.MaskedLM(V, dataclasses.replace(make(1, 12), max_len=24)))


def hyena_encoder():
    config = encoders.EncoderConfig(**SHAPE, mixers=("hyena",), positions="none", n_outputs=3)
    return predictor(hyena.HyenaClassifier(V, config))


def pixels(config):
    """Return the patches of an image, with rows and columns."""
    torch.manual_seed(0)
    count = config.rows * config.columns
    ids = torch.zeros(1, count + 1, 2 + config.patch**2 * config.channels)
    ids[0, 1:, 0] = torch.arange(count) // config.columns + 1
    ids[0, 1:, 1] = torch.arange(count) % config.columns + 1
    ids[0, 1:, 2:] = torch.randint(0, 256, ids[0, 1:, 2:].shape).float()
    return ids


ALIGNED = ["abbac", "cabba", "bacab", "abcab", "baabc", "ccabb"]
VALUES = SimpleNamespace(names=["y"], classes=[])
UNEVEN = [[1.0], [5.0], [2.5], [np.nan], [3.0], [0.5], [7.0], [4.0]]


def fitted(family, targets=CLASSES, texts=TEXTS, text=TEXT, values=None, **options):
    """Fit a model to texts and their classes, labels or values."""
    shard, config = shard_of(texts, TOKENIZER), {"n_outputs": 3, "max_len": 24} | options
    aligned = options.get("task") == "position-label"
    if values is None:
        values = (np.arange(shard.tokens if aligned else shard.records) % 3).astype(np.int16)
    shard = dataclasses.replace(shard, targets=np.array(values), aligned=aligned)
    model = family(V, family.Config(**config))
    model.fit(shard, None, print)
    return predictor(model, torch.tensor([[*record(text), TOKENIZER.end]]), targets)


def fitted_items(family, tokenizer, items, targets=CLASSES, values=None, **options):
    """Fit a model to images, point clouds or series, and read one of them."""
    shape = {"n_outputs": 3, "max_len": 64} | tokenizer.model_config | options
    shard = shard_of(items, tokenizer)
    aligned = options.get("task") == "position-label"
    if values is None:
        values = (np.arange(shard.tokens if aligned else shard.records) % 3).astype(np.int16)
    shard = dataclasses.replace(shard, targets=np.array(values), aligned=aligned)
    model = family(tokenizer.vocab_size, family.Config(**shape))
    model.fit(shard, None, print)
    return predictor(model, torch.from_numpy(tokenizer.encode_batch(items[4:5])[0])[None], targets)


def fitted_images():
    images = np.random.default_rng(0).integers(0, 256, (9, 4, 6, 2), dtype=np.uint8)
    return fitted_items(linear.PixelLogistic, Patches.train(images, patch=2), list(images))


def point_clouds(atoms=False):
    draw, clouds = np.random.default_rng(0), []
    for count in (3, 5, 7, 6, 5, 4, 8, 6, 7):
        points = draw.normal(size=(count, 3)).astype(np.float32)
        kinds = draw.choice([1, 6, 8], count).astype(np.uint8) if atoms else NO_ATOMS
        features = np.zeros((count, 0), np.float32)
        clouds.append(PointCloud(points, features, kinds))
    return clouds


def fitted_points(family, atoms=False, **options):
    clouds = point_clouds(atoms)
    return fitted_items(family, Points.train(clouds), clouds, **options)


def waves():
    """Return series of 20 to 36 steps of two columns, some values missing."""
    draw, items = np.random.default_rng(0), []
    for number in range(9):
        steps = np.arange(20 + 2 * number)[:, None]
        values = np.sin(steps * (0.3 + 0.1 * (number % 3)) + [0, 1])
        values += 0.2 * draw.normal(size=values.shape) + 0.3
        values[3 + number, 0] = np.nan
        items.append(values)
    return items


def fitted_series(family, patch=4, **options):
    items = waves()
    return fitted_items(family, StepPatches.train(items, patch=patch), items, **options)


def masked_series():
    ids = series_ids()
    config = series_classifiers.modern_masked(1, 16)
    config = dataclasses.replace(config, patch=3, n_channels=2, max_len=24)
    return predictor(series_classifiers.MaskedSeries(7, config), ids)


def image(positions):
    config = vision.VisionConfig(
        **SHAPE, positions=positions, patch=2, rows=3, columns=3, n_outputs=3
    )
    ids = pixels(config)
    return predictor(vision.VisionTransformer(ids.size(2), config), ids)


def points(preset):
    config = dataclasses.replace(
        preset(1, 16), dimensions=3, group_size=4, n_features=2, n_outputs=3, max_len=24
    )
    torch.manual_seed(0)
    ids = torch.randn(1, 7, 3 + 4 * (1 + 3 + 2))
    ids[0, :, 3::6] = 1
    ids[0, 3, 3 + 6 * 3] = 0  # a group of three
    return predictor(point_transformer.PointTransformer(ids.size(2), config), ids)


def convolutional(task="label", **options):
    shape = {"n_layers": 3, "d_model": 7, "narrowest": 2, "widest": 4, "max_len": 24}
    config = ConvolutionConfig(**shape | options, task=task, n_outputs=3)
    return predictor(ConvolutionalClassifier(V, config))


def convolutional_series(task="label", patch=3):
    shape = {"n_layers": 2, "d_model": 6, "patch": patch, "n_channels": 2, "n_outputs": 3}
    config = series_classifiers.SeriesLayersConfig(**shape, task=task, pooling="mean")
    ids = series_ids() if patch > 1 else series_ids(9, 1)
    return predictor(series_classifiers.SeriesConvolution(ids.size(2), config), ids)


def convolutional_images():
    shape = {"n_layers": 3, "d_model": 8, "patch": 2, "rows": 3, "columns": 3}
    config = vision.ConvNetConfig(**shape, n_outputs=3)
    ids = pixels(config)
    return predictor(vision.ConvNet(ids.size(2), config), ids)


def series():
    config = dataclasses.replace(
        series_classifiers.modern(1, 16), patch=3, n_channels=2, n_outputs=3, max_len=24
    )
    return predictor(series_classifiers.SeriesTransformer(7, config), series_ids())


def series_ids(count=5, patch=3):
    """Return patches of steps of two channels, one value missing."""
    torch.manual_seed(0)
    ids = torch.randn(1, 1 + count, 1 + 2 * patch)
    ids[..., 0], ids[0, 2, patch], ids[0, 0] = patch, torch.nan, 0
    return ids


def recurrent_series():
    config = dataclasses.replace(
        series_classifiers.bidirectional(2, 6), patch=3, n_channels=2, n_outputs=3
    )
    return predictor(series_classifiers.SeriesRecurrent(7, config), series_ids())


def series_reader(model, past, future=None):
    def run(tap):
        return model.forecast(past, future, tap=tap)

    tensors = {"past": past} | ({} if future is None else {"future": future})
    return Reader(model, tensors, run, tokenizer=UNITS)


def recurrent_forecaster(family):
    config = RecurrentForecastConfig(
        n_layers=2, d_model=6, max_len=24, horizon=3, n_channels=2, patch=4, stride=2
    )
    torch.manual_seed(0)
    model, past = shaken(family(2, config)), torch.randn(1, 24, 2)
    return series_reader(model, past)


def forecaster(family, **options):
    config = PatchForecastConfig(
        **SHAPE | {"positions": "learned"} | options, horizon=3, n_channels=2, patch=4, stride=2
    )
    torch.manual_seed(0)
    model, past = shaken(family(2, config)), torch.randn(1, 24, 2)
    return series_reader(model, past)


def wave(gap=True, seed=0):
    """Return a look-back of 24 steps of two channels around a season of six, one value missing."""
    torch.manual_seed(seed)
    steps = torch.arange(24.0)
    past = torch.stack((steps / 6 * torch.pi, steps / 3), 1).sin() + 0.1 * torch.randn(24, 2)
    if gap:
        past[20, 0] = torch.nan
    return 2 * past[None] + 1


def windows(count=60, columns=2, lookback=24, horizon=4):
    """Return windows of a noisy wave of six steps."""
    draw, length = np.random.default_rng(0), lookback + horizon
    steps = np.arange(count + length - 1)[:, None] / 6 * np.pi
    values = np.sin(steps * np.arange(1, columns + 1))
    values = (2 * values + 1 + 0.3 * draw.normal(size=values.shape)).astype(np.float32)
    return Windows(
        path=Path("memory"),
        kind="records",
        ids=values,
        offsets=np.arange(count + 1) * length,
        vocab_size=0,
        records=count,
        tokens=count * length,
        symbols=count * horizon,
        bytes=0,
        starts=np.arange(count),
        lookback=lookback,
        horizon=horizon,
        series=np.zeros(count, np.int64),
    )


def classical(family, **options):
    """Fit a forecaster of four steps to windows of a wave; covariates are the last columns."""
    shape = {"max_len": 24, "horizon": 4, "n_channels": 2, "season": 6} | options
    model = family(shape["n_channels"], family.Config(**shape))
    known = shape.get("n_known", 0)
    torch.manual_seed(0)
    if hasattr(model, "fit"):
        model.fit(windows(columns=2 + known), None, print)
    past, future = wave(), torch.randn(1, 4, known)
    past = torch.cat((past, torch.randn(1, 24, known)), -1)
    return series_reader(shaken(model), past, future)


GPT2 = {"norm": "layer", "positions": "learned", "feedforward": "gelu", "bias": True}
GPT2 |= {"qk_norm": False, "tied": True}
VASWANI = {"positions": "sinusoidal", "feedforward": "relu", "post_norm": True}
CLASSICAL = {
    "naive": Naive,
    "seasonal naive": SeasonalNaive,
    "drift": Drift,
    "smoothing": ExponentialSmoothing,
    "ridge on lags": RidgeLags,
    "boosting": Boosting,
    "nlinear": NLinear,
    "dlinear": DLinear,
}
SCORES = ("dot", "negative_distance", "negative_log_distance", "gaussian", "cosine", "bilinear")

STEP_MODELS = {
    "decoder": changed_decoder(),
    "decoder with grouped heads": changed_decoder(n_kv_heads=1),
    "decoder of 2019": changed_decoder(**GPT2),
    "decoder of 2017": changed_decoder(**GPT2 | VASWANI, scale_embedding=True),
    **{f"{name} positions": changed_decoder(positions=name) for name in ("none", "binary")},
    **{f"{name} positions": changed_decoder(positions=name) for name in ("t5", "alibi")},
    **{f"{name} score": changed_decoder(score=name) for name in (*SCORES, "additive")},
    "window": changed_decoder(window=2, global_tokens=1),
    "attention without parameters": changed_decoder(projections="identity", qk_norm=False),
    "squared ReLU without norms": changed_decoder(feedforward="relu2", norm="none"),
    "linear attention": changed_decoder(mixers=("linear", "attention"), qk_norm=False),
    "hyena": lambda: hyena_model(2, "hyena"),
    "hyena of order 3": lambda: hyena_model(3, "hyena", "attention"),
    "rnn": lambda: recurrent_model(recurrent.RNNModel),
    "gru": lambda: recurrent_model(recurrent.GRUModel),
    "lstm": lambda: recurrent_model(recurrent.LSTMModel),
    "mlp": lambda: window_model(mlp.MLPConfig(d_model=9, d_embedding=4)),
    "mlp of one-hot vectors": lambda: window_model(mlp.onehot(1, 8)),
    "cnn": lambda: convolution("modern"),
    "wavenet": lambda: convolution("wavenet"),
    "lstm classifier": recurrent_classifier,
    "lstm over series": recurrent_series,
    "uniform": lambda: counted(Uniform, CountConfig()),
    "unigram": lambda: counted(Unigram, CountConfig()),
    "bigram": lambda: counted(Bigram, CountConfig()),
    "kneser-ney": lambda: counted(KneserNey, KneserNeyConfig()),
    "map": lambda: counted(DirichletNGram, DirichletNGramConfig(order=4)),
    "mean": lambda: counted(DirichletNGram, DirichletNGramConfig(order=3, estimate="mean")),
    "symmetric": lambda: counted(DirichletNGram, DirichletNGramConfig(order=3, prior="symmetric")),
    "hmm": hidden_markov,
    "naive bayes": lambda: fitted(linear.NaiveBayes),
    "nb-svm": lambda: fitted(linear.NbSvm),
    "logistic": lambda: fitted(linear.Logistic, weighting="counts"),
    "logistic of weighted counts": lambda: fitted(linear.Logistic, weighting="tf-idf", order=2),
    "logistic of aligned texts": lambda: fitted(
        linear.Logistic, texts=ALIGNED, places="each", order=2
    ),
    "majority": lambda: fitted(class_counts.Majority),
    "majority of labels": lambda: fitted(
        class_counts.Majority, LABELS, task="labels", n_outputs=2, values=[[1, 0], [0, 1]] * 4
    ),
    "mean of values": lambda: fitted(
        class_counts.Majority, VALUES, task="value", n_outputs=1, values=UNEVEN
    ),
    "pwm": lambda: fitted(class_counts.PWMClassifier, texts=ALIGNED),
    "markov": lambda: fitted(class_counts.ClassMarkov, order=3),
    "svm": lambda: fitted(linear.LinearSvm),
    "svm of labels": lambda: fitted(
        linear.LinearSvm, LABELS, task="labels", n_outputs=2, values=[[1, 0], [0, 1]] * 4
    ),
    "ridge": lambda: fitted(linear.Ridge, VALUES, task="value", n_outputs=1, values=UNEVEN),
    "logistic of windows": lambda: fitted(
        linear.WindowLogistic, task="position-label", window=5, values=None
    ),
    "n-grams that training never saw": lambda: fitted(linear.Logistic, text="\u2603" * 3),
    "encoder–decoder": lambda: translator(
        EncoderDecoder(V, EncoderDecoderConfig(**SHAPE, n_encoder_layers=1))
    ),
    "encoder–decoder of 2017": lambda: translator(EncoderDecoder(V, vaswani(1, 16))),
    "captioner": captioner,
    "chance": lambda: matched(contrastive.Chance(V, contrastive.ChanceConfig())),
    "cca": correlated,
    "cca of colors": colors,
    "contrastive": dual_encoder,
    "contrastive images": image_text_encoder,
    "cbow": lambda: word_vectors(CBOW),
    "skipgram": lambda: word_vectors(SkipGram, negatives=0),
    "ibm1": word_for_word,
    "nearest caption": nearest_captioner,
    "recurrent translator": lambda: translator(recurrent.RecurrentSeq2Seq(V, recurrent.cho(2, 8))),
    **{
        f"translator of {make.__name__}": lambda make=make: translator(
            recurrent.AttentiveSeq2Seq(V, make(1, 8))
        )
        for make in (recurrent.bahdanau, recurrent.luong, recurrent.bilinear)
    },
    **{
        f"encoder, {name} pooling": lambda name=name: encoder(pooling=name)
        for name in ("mean", "first", "max", "attention", "sum")
    },
    "bert": bert,
    "labels of positions": lambda: encoder("position-label"),
    "values": lambda: encoder("value", 1, SimpleNamespace(names=["y"], classes=[])),
    "cnn classifier": lambda: convolutional(),
    "cnn classifier of positions": lambda: convolutional("position-label", pooling="max"),
    "cnn classifier, max": lambda: convolutional(pooling="max", n_layers=1),
    "cnn over series": lambda: convolutional_series(),
    "cnn over steps": lambda: convolutional_series("position-label", 1),
    "cnn over images": lambda: convolutional_images(),
    "labels": lambda: encoder("labels", 2, LABELS),
    "hyena encoder": hyena_encoder,
    "masked": lambda: masked(encoders.modern_masked),
    "masked bert": lambda: masked(encoders.bert_masked),
    **{
        f"vit, {name} positions": lambda name=name: image(name)
        for name in ("rotary", "learned", "sinusoidal", "none")
    },
    "points": lambda: points(point_transformer.modern),
    "invariant points": lambda: points(point_transformer.invariant),
    "molecules": lambda: points(point_transformer.molecule),
    "series": series,
    "masked series": masked_series,
    "pixels": fitted_images,
    "statistics of points": lambda: fitted_points(linear.PointCloudLogistic),
    "statistics of molecules": lambda: fitted_points(linear.PointCloudLogistic, atoms=True),
    "coulomb": lambda: fitted_points(
        Coulomb,
        atoms=True,
        targets=VALUES,
        task="value",
        n_outputs=1,
        values=np.arange(9.0)[:, None] ** 1.5,
    ),
    "statistics of series": lambda: fitted_series(series_features.SeriesLogistic),
    "rocket": lambda: fitted_series(series_features.Rocket, n_features=400),
    "statistics of steps": lambda: fitted_series(
        series_features.StepLogistic, patch=1, task="position-label"
    ),
    "forecaster": lambda: forecaster(PatchForecaster),
    "causal forecaster": lambda: forecaster(DecoderForecaster),
    "lstm forecaster": lambda: recurrent_forecaster(RecurrentForecaster),
    "cnn forecaster": lambda: recurrent_forecaster(ConvolutionalForecaster),
    **{name: lambda family=family: classical(family) for name, family in CLASSICAL.items()},
    **{
        f"{name} with quantiles": lambda family=CLASSICAL[name]: classical(
            family, quantiles=(0.1, 0.5, 0.9)
        )
        for name in ("drift", "boosting", "nlinear")
    },
    **{
        f"{name} with covariates": lambda family=CLASSICAL[name]: classical(family, n_known=2)
        for name in ("boosting", "nlinear", "dlinear", "ridge on lags")
    },
    "smoothing without a season": lambda: classical(ExponentialSmoothing, season=0, trend="damped"),
    "seasonal naive without a season": lambda: classical(SeasonalNaive, season=0),
    "hyena forecaster": lambda: forecaster(HyenaForecaster, mixers=("hyena",), positions="none"),
}
