"""Small trained runs, which all tests here share."""

import random
import shutil

import pytest
import torch
from small_runs import LETTERS

import regard.api
from regard.planning import plan_recipe

SMALL = ["model.n_layers=1", "model.d_model=16", "train.steps=3", "train.batch_tokens=256"]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Tiny models are fastest on one thread, on a busy machine by far."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def language_runs(tmp_path_factory):
    """Three runs with data and recipe: of records, of running text, and of counts."""
    folder, rng = tmp_path_factory.mktemp("language"), random.Random(0)

    def word():
        return "".join(rng.choices(LETTERS, k=rng.randint(2, 8)))

    lines, text = folder / "names.txt", folder / "prose.txt"
    lines.write_text("\n".join(word() for _ in range(150)) + "\n")
    text.write_text(" ".join(word() for _ in range(600)))
    steps = ["train.steps=3", "train.batch_tokens=128"]
    sizes = ["model.n_layers=1", "model.d_model=32", "model.max_len=24"]
    plans = {
        "records": (lines, ["data.format=lines", "task.forbid=unseen", *steps, *sizes]),
        "text": (
            text,
            ["data.format=text", "output.tokenizer=bpe", "model.name=lstm", *steps, *sizes],
        ),
        "counts": (lines, ["data.format=lines", "model.name=bigram"]),
    }
    for name, (source, assignments) in plans.items():
        recipe, _ = plan_recipe([source], assignments=assignments)
        regard.api.train_recipe(recipe, folder / name)
    return folder


@pytest.fixture(scope="session")
def prediction_runs(tmp_path_factory):
    """Small runs of each task with targets."""
    folder, rng = tmp_path_factory.mktemp("prediction"), random.Random(0)
    lines = ["text\tmore\thas_c\thas_d\tshare\tvowels"]
    for _ in range(90):
        text = "".join(rng.choices("aabbcde", k=rng.randint(4, 12)))
        more = "a" if text.count("a") > text.count("b") else "b"
        vowels = "".join("V" if c in "ae" else "C" for c in text)
        share = 1000 * text.count("a") / len(text)
        lines.append(f"{text}\t{more}\t{int('c' in text)}\t{int('d' in text)}\t{share}\t{vowels}")
    (folder / "letters.tsv").write_text("\n".join(lines) + "\n")
    plans = {
        "label": ("more", "transformer"),
        "labels": ("has_c,has_d", "lstm"),
        "value": ("share", "transformer"),
        "position-label": ("vowels", "cnn"),
        "counted": ("more", "naive-bayes"),
    }
    for name, (target, model) in plans.items():
        recipe, _ = plan_recipe(
            [folder / "letters.tsv"],
            data={"input": "text", "target": target},
            model={"name": model},
            assignments=SMALL if model != "naive-bayes" else [],
        )
        regard.api.train_recipe(recipe, folder / name)
    return folder


@pytest.fixture
def copy_run(tmp_path):
    """Copies a run, so that it can be damaged."""
    return lambda run: shutil.copytree(run, tmp_path / run.name)
