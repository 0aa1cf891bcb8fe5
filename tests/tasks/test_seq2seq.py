"""Training on pairs: it learns, it resumes exactly, and packing changes nothing."""

from __future__ import annotations

import random

import pytest
import torch

from regard.api import train_recipe
from regard.data.corpus import reopen
from regard.data.targets import TargetColumn
from regard.decoding import Greedy
from regard.decoding.engine import translate
from regard.errors import UsageError
from regard.evaluation.language_modeling import log_probs
from regard.planning import plan_recipe
from regard.recipe import build
from regard.registry import MODELS
from regard.run import Run
from regard.storage import read_tensors
from regard.tasks import seq2seq
from regard.training.trainer import Trainer
from regard.verify import SEQ2SEQ_CHECKS, verify


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Tiny models are fastest on one thread, on a busy machine by far."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def few_translations(monkeypatch):
    """Models that have learned little never stop."""
    monkeypatch.setattr(seq2seq, "MAX_TRANSLATED", 4)


@pytest.fixture(scope="module")
def reversed_words(tmp_path_factory):
    """Words and the same words backwards."""
    folder, draw = tmp_path_factory.mktemp("pairs"), random.Random(1)
    words = {"".join(draw.choices("abcdef", k=draw.randint(2, 5))) for _ in range(900)}
    words = sorted(words)
    draw.shuffle(words)
    (folder / "words.there").write_text("".join(f"{w}\n" for w in words))
    (folder / "words.back").write_text("".join(f"{w[::-1]}\n" for w in words))
    return [folder / "words.there", folder / "words.back"]


def recipe_of(files, *keys):
    small = ["model.n_layers=2", "model.d_model=64", "model.dropout=0", "train.batch_tokens=1024"]
    return plan_recipe(files, assignments=[*small, *keys])


@pytest.mark.slow
def test_it_learns_to_say_words_backwards(reversed_words, tmp_path):
    recipe, lines = recipe_of(reversed_words, "train.steps=150", "train.label_smoothing=0")
    assert recipe.task.name == "target" and "there and back, line by line" in lines[0]
    result = train_recipe(recipe, tmp_path / "run")
    assert result.splits["test"]["nats_per_symbol"].value < 0.1
    model, corpus = Run(tmp_path / "run").model(), reopen(tmp_path / "run")
    tokenizer = corpus.tokenizer
    sources = [[*map(int, tokenizer.encode(word)), tokenizer.end] for word in ("abcde", "fad")]
    found = translate(model, sources, Greedy(), start=tokenizer.start, end=tokenizer.end)
    assert [tokenizer.decode(one.ids) for (one,) in found] == ["edcba", "daf"]


def test_a_run_on_pairs_resumes_to_the_same_bits(reversed_words, tmp_path, monkeypatch):
    keys = ["train.steps=12", "train.checkpoint_every=1", "model.dropout=0.1", "train.eval_every=4"]
    recipe, _ = recipe_of(reversed_words, *keys)
    train_recipe(recipe, tmp_path / "whole")
    take = Trainer.take_step

    def dies(self, step):
        if step == 7:
            raise KeyboardInterrupt
        return take(self, step)

    monkeypatch.setattr(Trainer, "take_step", dies)
    with pytest.raises(KeyboardInterrupt):
        train_recipe(recipe, tmp_path / "cut")
    monkeypatch.setattr(Trainer, "take_step", take)
    train_recipe(recipe, tmp_path / "cut", resume=True)
    one, other = (read_tensors(tmp_path / run / "model.safetensors") for run in ("whole", "cut"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_sources_may_have_a_vocabulary_of_their_own(reversed_words, tmp_path):
    recipe, _ = recipe_of(reversed_words, "train.steps=3", "task.shared_vocab=false")
    train_recipe(recipe, tmp_path / "run")
    corpus, model = reopen(tmp_path / "run"), Run(tmp_path / "run").model()
    assert corpus.source_tokenizer is not None
    assert model.config.source_vocab == corpus.source_tokenizer.vocab_size


def test_every_target_has_the_probability_it_has_alone(reversed_words, tmp_path):
    recipe, _ = recipe_of(reversed_words, "train.steps=3")
    train_recipe(recipe, tmp_path / "run")
    model, corpus = Run(tmp_path / "run").model(), reopen(tmp_path / "run")
    shard = corpus.valid
    packed, scored = log_probs(model, shard, corpus.tokenizer)
    model.supports_packing = False  # one pair a row
    alone, again = log_probs(model, shard, corpus.tokenizer)
    assert (scored == again).all() and scored.sum() == shard.tokens - shard.records
    assert abs(packed - alone).max() < 1e-4


@pytest.mark.parametrize("model", sorted(MODELS.names("target", "tokens")))
def test_every_translator_trains_and_passes_every_check_there_is(reversed_words, tmp_path, model):
    keys = ["train.steps=6", f"model.name={model}"]
    if model != "ibm1":
        keys += ["model.n_layers=1", "model.d_model=32", "train.batch_tokens=512"]
    train_recipe(plan_recipe(reversed_words, assignments=keys)[0], tmp_path / "run")
    report = verify(tmp_path / "run")
    assert all(check.ok for check in report.checks), report
    missing = {"fused = explicit"} if model != "transformer" else set()
    assert {check.name for check in report.checks} == set(SEQ2SEQ_CHECKS) - missing


def test_different_texts_are_for_translation_where_targets_may_be_texts():
    column = TargetColumn()
    for word in ("ein", "zwei", "drei"):
        column.add(word[::-1], word)
    suggest = seq2seq.Seq2Seq.suggest
    assert suggest([column], ["de"], texts=True) == "texts under 'de', 3 different ones of 3"
    assert suggest([column], ["de"], texts=False) is None
    assert suggest([column, column], ["de", "fr"], texts=True) is None


def test_defaults_are_those_of_sequence_to_sequence_models(reversed_words):
    recipe, lines = plan_recipe(reversed_words)
    assert recipe.input.tokenizer == recipe.output.tokenizer == "characters"
    assert (recipe.train.label_smoothing, recipe.train.average_last) == (0.1, 5)
    assert "characters for both sides (short, or few)" in lines[-2]
    assert lines[-1].endswith("label smoothing 0.1, 5 minutes (--minutes changes that)")
    counted, _ = plan_recipe(reversed_words, model={"name": "ibm1"})
    assert counted.train.label_smoothing == 0 and counted.train.average_last == 0


def test_both_tables_are_read_and_settings_are_checked():
    tables = {"task": {"name": "target"}, "data": {"train": ["a.en", "a.de"]}}
    recipe = build(tables)
    assert (recipe.input.name, recipe.output.name) == ("text", "text")
    with pytest.raises(UsageError, match="max_ratio must be 0"):
        build({**tables, "task": {"name": "target", "max_ratio": 0.5}})


def test_the_card_names_commands_for_the_run():
    verbs = [verb.format(run="runs/a") for verb in seq2seq.Seq2Seq.card.verbs]
    assert verbs[0] == "translate runs/a < FILE" and "score runs/a FILE" in verbs
    assert seq2seq.Seq2Seq.starts_from == ("target",)
