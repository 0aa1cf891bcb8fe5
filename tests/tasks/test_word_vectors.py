"""Word vectors: what is left open is chosen for the file."""

import pytest

from regard.errors import UsageError
from regard.planning import plan_recipe
from regard.recipe import build
from regard.tasks.word_vectors import WordVectorTask, choose_epochs


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the furry cat runs after a dog while we sleep\n" * 400)
    return path


def test_words_of_bases_are_kmers(tmp_path):
    (tmp_path / "dna.txt").write_text("ACGTTGCAACGTAGGCTA\n" * 30)
    recipe, lines = plan_recipe([tmp_path / "dna.txt"], model={"name": "cbow"})
    assert recipe.input.tokenizer == "kmers" and "words of bases" in lines[0]
    assert recipe.task.name == "vectors" and recipe.train.lr == 0.15
    assert recipe.model.config.epochs == 50
    asked, _ = plan_recipe(
        [tmp_path / "dna.txt"], model={"name": "cbow"}, input={"tokenizer": "nucleotides"}
    )
    assert asked.input.tokenizer == "nucleotides"


def test_words_of_text_are_words(text):
    recipe, lines = plan_recipe([text], model={"name": "skipgram"})
    assert recipe.input.tokenizer == "words" and recipe.input.vocab_size == 1 << 20
    assert recipe.train.lr == 0.025 and recipe.train.warmup == 0
    assert recipe.model.config.d_model == 100 and "50 epochs of about" in lines[1]
    sized, _ = plan_recipe([text], model={"name": "skipgram", "size": 2})
    assert sized.model.config.d_model == 128


@pytest.mark.parametrize(
    ("model", "train", "words"),
    [
        ({}, {"steps": 1000}, "1,000 steps, as asked"),
        ({"epochs": 7}, {}, "7 epochs, as asked"),
        ({}, {"minutes": 0.5}, "0.5 minutes, as asked"),
        ({}, {}, "40 epochs of about 1,000,000 words (model.epochs changes that)"),
    ],
)
def test_how_long_it_trains_is_said_in_words(model, train, words):
    assert choose_epochs(model, train, 1_000_000) == words


def test_a_model_of_vectors_decides_the_task_and_it_has_no_output(text):
    assert plan_recipe([text], model={"name": "cbow"})[0].output is None
    with pytest.raises(UsageError, match=r"\[output\]: task vectors has no such table"):
        build({"task": {"name": "vectors"}, "output": {"tokenizer": "words"}})


def test_it_lends_embeddings_and_is_not_compared():
    assert WordVectorTask.lends_embeddings and not WordVectorTask.compares
    assert WordVectorTask.starts_from == ()
    verbs = [verb.format(run="runs/a") for verb in WordVectorTask.card.verbs]
    assert "export runs/a OUT.vec --to vec" in verbs
    with pytest.raises(UsageError, match="regard evaluate` has --against"):
        WordVectorTask().result(None, {}, None)
