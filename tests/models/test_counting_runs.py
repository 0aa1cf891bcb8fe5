"""Every model that counts as a user meets it: trained from a file, proved, asked, looked at."""

from __future__ import annotations

import json
import random

import pytest
import torch

import regard
import regard.cli
from regard.decoding import Beam, Greedy, Sample
from regard.run import load_model
from regard.verify import verify
from regard.verify.checks import CHECKS

RUNGS = {
    "uniform": [],
    "unigram": [],
    "bigram": [],
    "map": [],
    "symmetric": ["model.name=map", "model.preset=symmetric", "model.estimate=mean"],
    "kneser-ney": ["model.order=4"],
}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Tiny models are fastest on one thread, on a busy machine by far."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module", params=RUNGS)
def run(request, tmp_path_factory):
    """A run on words that never hold `ca`."""
    folder, source = tmp_path_factory.mktemp(request.param), random.Random(1)
    words = ["".join(source.choices("abcd", k=source.randint(1, 9))) for _ in range(300)]
    path = folder / "words.txt"
    path.write_text("\n".join(word.replace("ca", "cb") for word in words) + "\n")
    named = RUNGS[request.param]
    if not any(key.startswith("model.name") for key in named):
        named = [f"model.name={request.param}", *named]
    options = [f"--set={key}" for key in [*named, "train.forbid=unseen"]]
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


def test_it_is_evaluated_looked_at_and_resumed(run, tmp_path, capsys):
    assert regard.cli.run(["evaluate", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["metrics"]["nats_per_symbol"]
    assert 0 < found["value"] < 3
    page = tmp_path / "look.html"
    assert regard.cli.run(["look", str(run), "abba", f"--out={page}"]) == 0
    assert "Surprise" in page.read_text()
    before = (run / "model.safetensors").read_bytes()
    words = ["train", str(run / "recipe.toml"), f"--out={run}", "--resume", "--quiet"]
    assert regard.cli.run(words) == 0
    assert (run / "model.safetensors").read_bytes() == before


def test_what_was_chosen_is_said_and_stored(tmp_path, capsys):
    path = tmp_path / "words.txt"
    source = random.Random(2)
    words = ["".join(source.choices(["abc", "abc", "abd"], k=7)) for _ in range(300)]
    path.write_text("\n".join(words) + "\n")
    assert regard.cli.run(["train", str(path), "--model=map", f"--out={tmp_path / 'run'}"]) == 0
    assert "by the likelihood of the validation part" in capsys.readouterr().err
    stored = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    model = load_model(tmp_path / "run")
    assert stored["order"] == model.order == len(model.alphas) >= 1
    assert "order = 0" in (tmp_path / "run" / "recipe.toml").read_text()
    low, high = model.interval([4, 5], 6)  # c after ab: likely, not sure
    assert 0.4 < low < high < 1


@pytest.mark.parametrize("name", ["map", "kneser-ney"])
def test_running_text_is_one_stream(name, tmp_path):
    path = tmp_path / "story.txt"
    path.write_text("the cat sat on the mat.\n\n" * 60)
    options = [f"--set={key}" for key in (f"model.name={name}", "model.max_len=20")]
    words = ["train", str(path), f"--out={tmp_path / 'run'}", "--quiet", *options]
    assert regard.cli.run([*words, "--set=data.format=text"]) == 0
    report = verify(tmp_path / "run")
    assert all(check.ok for check in report.checks), report
    ((one,),) = regard.load(tmp_path / "run").generate(["the "], Greedy(), max_new=60)
    assert len(one.ids) == 60 or one.finished  # past max_len, which limits nothing here


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--model=kneser-ney", "--set=model.order=0"], "order must be from 1 to 64, got 0"),
        (["--model=map", "--set=model.prior=flat"], "'hierarchical' or 'symmetric'"),
        (["--model=bigram", "--set=model.order=2"], "unknown key 'model.order'"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key(options, said, tmp_path, capsys):
    path = tmp_path / "words.txt"
    path.write_text("ab\nba\n" * 20)
    assert regard.cli.run(["train", str(path), f"--out={tmp_path / 'run'}", *options]) == 2
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error
    assert not (tmp_path / "run").exists()
