"""Checks of configuration fields: what they accept, and what their errors name."""

from __future__ import annotations

import json
import random
from types import SimpleNamespace

import pytest
import torch

import regard
import regard.cli
from regard.decoding import Beam, Greedy, Sample
from regard.errors import UsageError
from regard.models import (
    Shape,
    check_choices,
    check_dropout,
    check_ranges,
    count_parameters,
    find_config,
)
from regard.models.supervised import HEADS
from regard.registry import MODELS, TASKS
from regard.verify import LM_CHECKS, verify


def test_bounds_belong_to_the_range():
    for value in (1, 5):
        check_ranges(SimpleNamespace(n_layers=value), n_layers=5)
    check_ranges(SimpleNamespace(window=0), least=0, window=5)


@pytest.mark.parametrize("value", [0, 6])
def test_a_value_outside_the_range_is_refused_by_name(value):
    with pytest.raises(ValueError, match=f"^n_layers must be from 1 to 5, got {value}$"):
        check_ranges(SimpleNamespace(d_model=3, n_layers=value), d_model=4, n_layers=5)


def test_an_unknown_choice_is_refused_with_the_allowed_ones():
    check_choices(SimpleNamespace(norm="rms"), norm=("rms", "layer"))
    with pytest.raises(ValueError, match=r"^norm must be one of rms, layer, got 'batch'$"):
        check_choices(SimpleNamespace(norm="batch"), norm={"rms": 1, "layer": 2})


def test_dropout_is_a_probability_below_one():
    check_dropout(SimpleNamespace(dropout=0.0))
    for value in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match="dropout must be at least 0 and below 1"):
            check_dropout(SimpleNamespace(dropout=value))


SHAPE = Shape(8, 64, 0.25)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("transformer", SHAPE),
        ("hyena", SHAPE),
        ("lstm", Shape(2, 128, 0.25)),
        ("rnn", Shape(2, 128, 0.25)),
        ("mlp", Shape(1, 256, 0.1)),
        ("cnn", Shape(4, 64, 0.1)),
    ],
)
def test_families_adapt_the_shape_of_a_transformer(name, expected):
    assert MODELS.get(name).adapt_shape(SHAPE, 16) == expected


def test_recurrent_translators_are_wide_and_classifiers_keep_the_shape():
    assert MODELS.get("rnn-attention", "target").adapt_shape(SHAPE, 16) == Shape(2, 128, 0.25)
    assert MODELS.get("lstm", "label").adapt_shape(SHAPE, 16) == SHAPE


@pytest.mark.parametrize("max_len", [2, 8, 9, 16, 256])
def test_a_convolutional_model_is_just_deep_enough_for_its_context(max_len):
    cls = MODELS.get("cnn")
    n_layers, make = cls.adapt_shape(Shape(4, 64), max_len).n_layers, cls.PRESETS["modern"]
    assert make(n_layers, 64).receptive_field >= max_len
    assert n_layers == 1 or make(n_layers - 1, 64).receptive_field < max_len


LOOPS = {
    "count": {"uniform", "unigram", "bigram", "map", "kneser-ney", "ibm1", "nearest"}
    | {"naive", "seasonal-naive", "drift", "chance"},
    "solve": {
        *("majority", "mean", "ridge", "naive-bayes", "nb-svm", "pwm", "markov", "logistic"),
        *("svm", "coulomb", "rocket", "ets", "boosting", "cca"),
    },
    "em": {"hmm"},
    "word2vec": {"cbow", "skipgram"},
    "gradient": {
        *("mlp", "cnn", "rnn", "gru", "lstm", "hyena", "transformer", "rnn-attention"),
        *("dlinear", "nlinear", "decoder"),
    },
}


@pytest.mark.parametrize("task", sorted(TASKS))
def test_every_family_tells_how_it_is_trained(task):
    for entry in MODELS.entries:
        if task in entry.tasks:
            cls = MODELS.get(entry.name, task, entry.reads)
            assert entry.name in LOOPS[cls.loop]
            assert cls.fits_at_once() == hasattr(cls, "fit")


RUNS = {
    "mlp": ["mlp", "model.window=2"],
    "onehot": ["mlp", "model.preset=onehot", "model.activation=gelu"],
    "cnn": ["cnn"],
    "wavenet": ["cnn", "model.preset=wavenet", "model.kernel=3"],
    "rnn": ["rnn"],
    "gru": ["gru"],
    "lstm": ["lstm"],
}
SMALL = ["train.steps=4", "train.batch_tokens=128", "model.n_layers=2", "model.d_model=12"]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Tiny models are fastest on one thread, on a busy machine by far."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module", params=RUNS)
def run(request, tmp_path_factory):
    """A run of a few steps on words that never contain `ca`."""
    folder, source = tmp_path_factory.mktemp(request.param), random.Random(1)
    words = ["".join(source.choices("abcd", k=source.randint(1, 9))) for _ in range(200)]
    path = folder / "words.txt"
    path.write_text("\n".join(word.replace("ca", "cb") for word in words) + "\n")
    name, *settings = RUNS[request.param]
    settings = [*SMALL, f"model.name={name}", *settings, "task.forbid=unseen"]
    options = [f"--set={key}" for key in settings]
    assert regard.cli.run(["train", str(path), f"--out={folder / 'run'}", "--quiet", *options]) == 0
    return folder / "run"


def test_a_run_passes_every_check(run):
    report = verify(run)
    assert all(check.ok for check in report.checks), report
    assert {check.name for check in report.checks} == set(LM_CHECKS) - {"fused = explicit"}


def test_every_strategy_generates_without_forbidden_transitions(run):
    generator = regard.load(run)
    start, end = generator.tokenizer.start, generator.tokenizer.end
    for strategy in (Greedy(), Sample(seed=1), Beam(width=3, n_best=2)):
        found = generator.generate(["a", "dab", ""], strategy, max_new=40)
        for sequences in found:
            assert sequences
            for one in sequences:
                assert start not in one.ids and end not in one.ids[:-1]
                assert "ca" not in generator.tokenizer.decode(one.ids)


def test_scores_of_records_are_finite_and_generated_ones_agree(run):
    generator = regard.load(run)
    ((one,),) = generator.generate(["ab"], Greedy(), max_new=6)
    text = "ab" + generator.tokenizer.decode([i for i in one.ids if i != generator.tokenizer.end])
    ((tokens, values),) = generator.score([text])
    assert len(tokens) == len(text) + 1
    assert values[2 : 2 + len(one.ids)] == pytest.approx(one.log_probs, abs=1e-5)


def test_looking_inside_writes_a_page(run, tmp_path, capsys):
    page = tmp_path / "look.html"
    assert regard.cli.run(["look", str(run), "abba", f"--out={page}"]) == 0
    written = page.read_text()
    assert "Surprise" in written and "Beam search" in written
    recurrent = json.loads((run / "config.json").read_text())["family"] in ("rnn", "gru", "lstm")
    assert ("Hidden state" in written) == recurrent


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_running_text_is_read_too(name, tmp_path):
    path = tmp_path / "story.txt"
    path.write_text("the cat sat on the mat.\n\n" * 60)
    options = [f"--set={key}" for key in [*SMALL, f"model.name={name}", "model.max_len=20"]]
    words = ["train", str(path), f"--out={tmp_path / 'run'}", "--quiet", *options]
    assert regard.cli.run([*words, "--set=data.format=text"]) == 0
    report = verify(tmp_path / "run")
    assert all(check.ok for check in report.checks), report
    ((one,),) = regard.load(tmp_path / "run").generate(["the "], Greedy(), max_new=60)
    assert len(one.ids) == 60 or one.finished  # past max_len, which limits nothing here


NEURAL = ["mlp", "cnn", "rnn", "gru", "lstm", "transformer"]


@pytest.mark.parametrize("name", NEURAL)
@pytest.mark.parametrize(
    ("wanted", "vocab_size"), [(20_000, 30), (80_000, 6), (80_000, 1000), (700_000, 30)]
)
def test_every_family_comes_within_a_tenth(name, wanted, vocab_size):
    config = find_config(name, wanted, vocab_size, max_len=32)
    model = MODELS.get(name)(vocab_size, config)  # on the CPU, not the meta device
    assert abs(sum(p.numel() for p in model.parameters()) - wanted) <= 0.1 * wanted
    assert config.max_len == 32
    assert torch.isfinite(model.logits(torch.zeros(1, 3, dtype=torch.long))).all()


@pytest.mark.parametrize("name", NEURAL)
def test_large_ones_too_without_taking_memory(name):
    config = find_config(name, 300_000_000, 50_000, n_layers=12, max_len=1024)
    assert count_parameters(name, 50_000, config) == pytest.approx(300_000_000, rel=0.1)
    assert config.n_layers == MODELS.get(name).adapt_shape(Shape(12, 1), 1024).n_layers


def test_a_preset_may_be_named():
    config = find_config("cnn", 50_000, 30, preset="wavenet", max_len=8)
    assert config.feedforward == "gated" and config.receptive_field == 8


def test_a_vocabulary_that_takes_more_than_all_is_refused():
    # two matrices of one column each, and two layers of 4 · (1 + 1 + 1 + 1)
    with pytest.raises(UsageError, match="lstm has 30,000 parameters, the closest has 200,032"):
        find_config("lstm", 30_000, 100_000)


def test_the_loss_of_values_is_shown_as_their_root_mean_squared_error():
    """From the loss that training minimises, half of the squared error of standardized values."""
    draw = torch.Generator().manual_seed(0)
    truths, guesses = torch.randn(2, 50, 1, generator=draw, dtype=torch.float64) * 3 + 7
    deviation, head = truths.std(correction=0), HEADS["value"]
    scaled = [(x - truths.mean()) / deviation for x in (guesses, truths)]
    _, plain = head.loss(*scaled, smoothing=0.0, weights=None)
    metric = head.loss_metric(deviation[None])
    rmse = (guesses - truths).square().mean().sqrt()
    assert (metric.name, metric.value(float(plain) / 50)) == ("rmse", pytest.approx(float(rmse)))
    # the error follows the slope of the curve
    slope = (metric.value(0.501) - metric.value(0.499)) / 0.002
    assert metric.error(0.5, 0.1) == pytest.approx(0.1 * slope, rel=1e-5)
    assert metric.error(0.0, 0.1) == 0.0


def test_each_loss_has_the_name_of_the_metric_that_it_is():
    one, two = torch.ones(1), torch.ones(2)
    names = {task: head.loss_metric(one).name for task, head in HEADS.items()}
    classes = dict.fromkeys(("label", "labels", "position-label"), "log_loss")
    assert names == classes | {"masked": "nats_per_token", "value": "rmse"}
    assert HEADS["value"].loss_metric(two).name == "rmse_standardized"
    assert HEADS["labels"].loss_metric(two).items == "labels"
    assert HEADS["label"].loss_metric(one).items == ""  # those of the modality


@pytest.mark.parametrize(
    ("value", "words"), [(1.16789, "RMSE 1.17"), (0.02378, "RMSE 0.0238"), (12345.6, "RMSE 12,346")]
)
def test_a_metric_is_shown_with_three_digits(value, words):
    assert HEADS["value"].loss_metric(torch.ones(1)).show(value) == words
