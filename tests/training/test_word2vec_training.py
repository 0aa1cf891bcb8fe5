"""Training word vectors: planted classes are found, runs repeat and resume bit for bit."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard.api import load
from regard.data.corpus import reopen
from regard.errors import UsageError, UserError
from regard.interop.word2vec_format import export_vec, import_vec, read_vec
from regard.models import word2vec
from regard.planning import plan_recipe
from regard.run import RECIPE
from regard.storage import read_tensors
from regard.training.progress import Reporter
from regard.training.word2vec_training import gains
from regard.verify import verify

pytest.importorskip("numba")

CLASSES = {
    "animal": ["cat", "dog", "cow", "pig"],
    "place": ["paris", "rome", "oslo", "bonn"],
    "food": ["bread", "cheese", "apple", "soup"],
}
FRAMES = {
    "animal": ["the furry {} runs after a", "a hungry {} sleeps while the"],
    "place": ["we fly to {} for two", "a train from {} arrives by"],
    "food": ["she eats {} with some", "he cooks {} in hot"],
}
VARYING = ("seconds", "read_per_second", "memory_bytes")


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    """Sentences in which the words of a class stand in the same places."""
    draw = random.Random(0)
    lines = []
    for _ in range(900):
        kind = draw.choice(list(CLASSES))
        lines.append(draw.choice(FRAMES[kind]).format(draw.choice(CLASSES[kind])))
    path = tmp_path_factory.mktemp("planted") / "text.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def recipe_of(text, name="skipgram", *sets):
    given = ["model.d_model=12", "model.epochs=12", "train.batch_tokens=1024", "model.sample=0"]
    rate = ["train.lr=0.1"] if name == "skipgram" else ["train.lr=0.3"]
    return plan_recipe([text], model={"name": name}, assignments=[*given, *rate, *sets])[0]


@pytest.fixture(scope="module")
def run(text, tmp_path_factory) -> Path:
    """A run of skip-gram on the planted classes."""
    out = tmp_path_factory.mktemp("runs") / "planted"
    regard.train_recipe(recipe_of(text), out)
    return out


def lines_of(run: Path) -> list[dict[str, object]]:
    read = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in VARYING} for line in read]


def found_classes(word_vectors) -> float:
    """The share of planted words whose three nearest planted words are of their class."""
    planted = {word: kind for kind, words in CLASSES.items() for word in words}
    right = 0
    for word, kind in planted.items():
        near = [n.word for n in word_vectors.nearest(word, len(word_vectors)) if n.word in planted][
            :3
        ]
        right += all(planted[other] == kind for other in near)
    return right / len(planted)


def test_words_of_a_planted_class_are_nearest(run):
    assert found_classes(load(run)) == 1.0


@pytest.mark.parametrize(
    ("name", "sets"),
    [("cbow", []), ("skipgram", ["model.negatives=0"]), ("skipgram", ["model.shares=3"])],
    ids=["cbow", "full softmax", "three shares"],
)
def test_so_they_are_by_other_ways(text, tmp_path, name, sets):
    regard.train_recipe(recipe_of(text, name, *sets), tmp_path / "run")
    assert found_classes(load(tmp_path / "run")) >= 11 / 12


def test_the_loss_of_every_pass_is_logged_and_falls(run):
    losses = [line["value"] for line in lines_of(run) if line["event"] == "train"]
    assert len(losses) == 12 and losses[-1] < losses[0] - 0.3
    facts = json.loads((run / "regard.json").read_text())
    assert facts["epochs"] == 12 and set(facts["metrics"]["test"]) == {"loss"}
    low, high = (facts["metrics"]["test"]["loss"][k] for k in ("low", "high"))
    assert 0 < low < high


@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_seed_gives_the_same_bits_on_any_threads(run, text, tmp_path, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        regard.train_recipe(recipe_of(text), tmp_path / "again")
    finally:
        torch.set_num_threads(before)
    one, other = (read_tensors(r / "model.safetensors") for r in (run, tmp_path / "again"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert lines_of(run) == lines_of(tmp_path / "again")


class Stop(Reporter):
    """Ends the process, as it were, in a step after the first checkpoint."""

    def show(self, status):
        if status.done == 22:
            raise KeyboardInterrupt


def test_a_run_that_was_killed_ends_with_the_same_bits(run, text, tmp_path):
    out, recipe = tmp_path / "killed", recipe_of(text)
    with pytest.raises(KeyboardInterrupt):
        regard.train_recipe(recipe, out, reporter=Stop(quiet=True))
    assert (out / "checkpoints").exists() and not (out / "regard.json").exists()
    regard.train_recipe(recipe, out, resume=True)
    one, other = (read_tensors(r / "model.safetensors") for r in (run, out))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert lines_of(run) == lines_of(out)


def test_verify_finds_nothing_wrong(run):
    report = verify(run)
    assert report.ok and {"one thread = many", "resume bit-equality"} <= {
        check.name for check in report.checks
    }


def test_minutes_become_whole_passes(text, tmp_path):
    recipe, lines = plan_recipe(
        [text], model={"name": "skipgram"}, train={"minutes": 0.02},
        assignments=["model.d_model=4", "train.batch_tokens=2048"],
    )  # fmt: skip
    assert "0.02 minutes, as asked" in lines[1] and recipe.model.config.epochs == 0
    done = regard.train_recipe(recipe, tmp_path / "run")
    per_pass = -(-reopen(tmp_path / "run").train.tokens // 2048)
    assert done.steps >= 1 and done.steps % per_pass == 0
    assert f"steps = {done.steps}\n" in (tmp_path / "run" / RECIPE).read_text()


def test_changes_are_added_up_for_rare_words_and_averaged_for_frequent_ones():
    often = np.array([1e-3, 50.0, 1e6])
    found = gains(often, 0.1, 4)
    assert found[0] == pytest.approx(1, abs=1e-3) and found[2] == pytest.approx(1 / 4, abs=1e-3)
    assert 1 / 4 < found[1] < 1
    q = (1 - 0.1 * 0.25) ** 50.0  # one part closes 1 - q of the gap, four in a row 1 - q^4
    assert found[1] * 4 * (1 - q) == pytest.approx(1 - q**4)


def test_vectors_go_out_as_text_and_come_back_bit_for_bit(run, tmp_path):
    export_vec(run, tmp_path / "words.vec")
    word_vectors = load(run)
    words, vectors = read_vec(tmp_path / "words.vec")
    assert words == word_vectors.words and np.array_equal(vectors, word_vectors.inputs)
    import_vec(tmp_path / "words.vec", tmp_path / "back")
    back = load(tmp_path / "back")
    assert back.nearest("cat", 5) == word_vectors.nearest("cat", 5)
    with pytest.raises(UserError, match="no loss to measure"):
        back.measure(None)


def test_a_transformer_begins_with_the_vectors_of_its_words(run, text, tmp_path):
    said = []
    reporter = Reporter(quiet=True)
    reporter.say = said.append
    sets = ["model.n_layers=1", "model.n_heads=2", "model.n_kv_heads=2", "model.d_head=6"]
    sets += ["train.steps=1", "train.lr=1e-9", "train.adam_lr=1e-9", "train.batch_tokens=256"]
    recipe, _ = plan_recipe(
        [text], output={"tokenizer": "words"}, train={"init_from": str(run)}, assignments=sets
    )
    assert recipe.model.config.d_model == 12  # that of the vectors
    regard.train_recipe(recipe, tmp_path / "run", reporter=reporter)
    word_vectors, model = load(run), regard.load(tmp_path / "run")
    (line,) = [line for line in said if line.startswith("start: vectors")]
    count = int(line.split(" for ")[1].split()[0])
    tokenizer, weight = model.tokenizer, model.model.embedding.weight.detach()
    known = [i for i in range(tokenizer.vocab_size) if tokenizer.text(i).strip() in word_vectors]
    assert len(known) == count < tokenizer.vocab_size
    ours = weight[known].numpy()
    theirs = word_vectors.inputs[[word_vectors.row(tokenizer.text(i).strip()) for i in known]]
    np.testing.assert_allclose(ours / ours.std(), theirs / theirs.std(), atol=1e-4)
    with pytest.raises(UsageError, match="d_model = 16"):
        plan_recipe([text], train={"init_from": str(run)}, model={"d_model": 16})


def test_mistakes_are_told(run, text, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="cannot start from another run"):
        recipe_of(text, "cbow", f'train.init_from="{run}"')
    with pytest.raises(UsageError, match="forbid"):
        regard.train_recipe(recipe_of(text, "cbow", 'task.forbid="unseen"'), tmp_path / "forbidden")
    with pytest.raises(UserError, match="not finite"):
        regard.train_recipe(recipe_of(text, "cbow", "train.lr=1e30"), tmp_path / "far")
    monkeypatch.setattr(word2vec, "has_numba", lambda: False)
    with pytest.raises(UserError, match=r"numba.*pip install 'regard\[fast\]'"):
        regard.train_recipe(recipe_of(text), tmp_path / "without")
    with pytest.raises(UserError, match="did you mean 'cat'"):
        load(run).nearest("catt")
