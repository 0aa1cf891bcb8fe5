"""Every neural rung as a user meets it: trained from a file, proved, resumed, looked at, asked."""

from __future__ import annotations

import json
import random

import pytest
import torch

import regard
import regard.cli
from regard.decoding import Beam, Greedy, Sample
from regard.verify import verify
from regard.verify.checks import CHECKS

RUNGS = {
    "mlp": ["model.window=2"],
    "onehot": ["model.name=mlp", "model.preset=onehot", "model.activation=gelu"],
    "cnn": [],
    "wavenet": ["model.name=cnn", "model.preset=wavenet", "model.kernel=3"],
    "rnn": [],
    "gru": [],
    "lstm": [],
}
SMALL = ["train.steps=4", "train.batch_tokens=128", "model.n_layers=2", "model.d_model=12"]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Tiny models are fastest on one thread, on a busy machine by far."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module", params=RUNGS)
def run(request, tmp_path_factory):
    """A run of a few steps on words that never hold `ca`."""
    folder, source = tmp_path_factory.mktemp(request.param), random.Random(1)
    words = ["".join(source.choices("abcd", k=source.randint(1, 9))) for _ in range(200)]
    path = folder / "words.txt"
    path.write_text("\n".join(word.replace("ca", "cb") for word in words) + "\n")
    named = RUNGS[request.param]
    if not any(key.startswith("model.name") for key in named):
        named = [f"model.name={request.param}", *named]
    options = [f"--set={key}" for key in [*SMALL, *named, "train.forbid=unseen"]]
    assert regard.cli.run(["train", str(path), f"--out={folder / 'run'}", "--quiet", *options]) == 0
    return folder / "run"


def test_it_passes_every_check_there_is(run):
    report = verify(run)
    assert all(check.ok for check in report.checks), report
    assert {check.name for check in report.checks} == set(CHECKS) - {
        "fused = explicit",
        "sources together = alone",
        "translated together = alone",
    }


def test_every_strategy_generates_and_keeps_the_forbidden_out(run):
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
