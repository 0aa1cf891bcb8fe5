"""Uniform, unigram and bigram against counting by hand; what all tables of counts share; and all
counting models from the command line.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from id_records import END, START, shard

import regard
import regard.cli
from regard.decoding import Beam, Greedy, Sample
from regard.layers.tap import Tap
from regard.models import language_model
from regard.models.language_model import IGNORE
from regard.models.ngrams import Bigram, CountConfig, Uniform, Unigram
from regard.run import Run, weights
from regard.verify import LM_CHECKS, verify

V = 7
RECORDS = st.lists(st.lists(st.integers(3, 6), max_size=9), min_size=1, max_size=8)


def make(family, records, size=V):
    model = family(size, CountConfig())
    model.fit(shard(records, size), None, print)
    return model


def score(model, a, b):
    return float(model.score(torch.tensor([[a]]), torch.tensor([[b]])))


@settings(max_examples=30, deadline=None)
@given(RECORDS)
def test_a_bigram_is_relative_frequencies(records):
    model, table = make(Bigram, records), Counter()
    for record in records:
        table.update(pairwise([START, *record, END]))
    for a in range(V):
        total = sum(table[a, b] for b in range(V))
        for b in range(V):
            if not total:  # never counted: anything may follow but <S>
                expected = -math.inf if b == START else -math.log(V - 1)
            else:
                expected = math.log(table[a, b] / total) if table[a, b] else -math.inf
            assert score(model, a, b) == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert model.totals.tolist() == [sum(table[a, b] for b in range(V)) for a in range(V)]


@settings(max_examples=30, deadline=None)
@given(RECORDS)
def test_a_unigram_is_relative_frequencies_of_what_follows(records):
    model = make(Unigram, records)
    table = Counter(x for record in records for x in [*record, END])
    for b in range(V):
        expected = math.log(table[b] / table.total()) if table[b] else -math.inf
        assert score(model, 4, b) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_uniform_is_all_tokens_but_the_start():
    model = make(Uniform, [[3, 4], [5]])
    p = model.logits(torch.tensor([[3, 6]])).exp()
    assert p[0, :, START].tolist() == [0, 0]
    assert p.sum(-1)[0].tolist() == pytest.approx([1, 1])
    assert p[0, 0, 3] == p[0, 1, 6] == pytest.approx(1 / (V - 1))


def test_a_constraint_renormalises_what_is_left():
    model = make(Bigram, [[3, 4, 3, 4, 3, 5, 3, 6]])

    def forbid_one(logits, previous):
        return logits.index_fill(-1, torch.tensor([4]), -torch.inf)

    log_p = model.score(torch.tensor([[3]]), torch.tensor([[5]]), constrain=forbid_one)
    assert float(log_p) == pytest.approx(math.log(0.5), rel=1e-6)


def test_scoring_works_in_chunks(monkeypatch):
    model = make(Bigram, [[3, 4, 3, 3, 4, 4]])
    x = torch.randint(3, 5, (3, 5))
    targets = x.clone()
    targets[1, 2:] = IGNORE

    def allow_all(logits, previous):
        return logits

    scores = model.score(x, targets, constrain=allow_all)
    torch.testing.assert_close(model.score(x, targets), scores)
    monkeypatch.setattr(language_model, "CHUNK", 4)
    torch.testing.assert_close(model.score(x, targets, constrain=allow_all), scores)


@pytest.mark.parametrize("family", [Uniform, Unigram, Bigram])
def test_an_unfitted_model_is_uniform(family):
    assert score(family(5, CountConfig()), 2, 3) == pytest.approx(-math.log(5))


def test_logits_can_be_tapped_and_no_table_of_all_pairs_is_stored():
    model = make(Bigram, [[3, 4, 5]], size=5000)
    tap = Tap(["logits"])
    logits = model.logits(torch.tensor([[3]]), tap=tap)
    assert torch.equal(tap.activations["logits"], logits)
    assert sum(t.numel() for t in weights(model).values()) < 3 * 5000


def test_codes_out_of_order_are_refused():
    model = make(Bigram, [[3, 4, 5]])
    state = model.state_dict()
    state["codes"] = state["codes"].flip(0)
    with pytest.raises(RuntimeError, match="codes must be sorted"):
        Bigram(V, CountConfig()).load_state_dict(state)


def test_an_invalid_max_len_is_refused():
    with pytest.raises(ValueError, match="max_len must be at least 1, got 0"):
        CountConfig(max_len=0)


MODELS = {
    "uniform": [],
    "unigram": [],
    "bigram": [],
    "map": [],
    "symmetric": ["model.name=map", "model.preset=symmetric", "model.estimate=mean"],
    "kneser-ney": ["model.name=kneser-ney", "model.order=4"],
}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Tiny models are fastest on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module", params=MODELS)
def run(request, tmp_path_factory):
    """A run on words that never contain `ca`."""
    folder, draw = tmp_path_factory.mktemp(request.param), random.Random(1)
    words = ["".join(draw.choices("abcd", k=draw.randint(1, 9))) for _ in range(300)]
    path = folder / "words.txt"
    path.write_text("\n".join(word.replace("ca", "cb") for word in words) + "\n")
    settings = MODELS[request.param] or [f"model.name={request.param}"]
    options = [f"--set={key}" for key in [*settings, "task.forbid=unseen"]]
    assert regard.cli.run(["train", str(path), f"--out={folder / 'run'}", "--quiet", *options]) == 0
    return folder / "run"


def test_a_run_passes_all_checks(run):
    report = verify(run)
    assert all(check.ok for check in report.checks), report
    assert {check.name for check in report.checks} == set(LM_CHECKS) - {"fused = explicit"}


def test_no_strategy_generates_a_forbidden_transition(run):
    generator = regard.load(run)
    start, end = generator.tokenizer.start, generator.tokenizer.end
    for strategy in (Greedy(), Sample(seed=1), Beam(width=3, n_best=2)):
        for sequences in generator.generate(["a", "dab", ""], strategy, max_new=40):
            assert sequences
            for sequence in sequences:
                assert start not in sequence.ids and end not in sequence.ids[:-1]
                assert "ca" not in generator.tokenizer.decode(sequence.ids)


def test_a_run_is_evaluated_displayed_and_resumed(run, tmp_path, capsys):
    assert regard.cli.run(["evaluate", str(run), "--json"]) == 0
    metric = json.loads(capsys.readouterr().out)["metrics"]["nats_per_symbol"]
    assert 0 < metric["value"] < 3
    page = tmp_path / "look.html"
    assert regard.cli.run(["look", str(run), "abba", f"--out={page}"]) == 0
    assert "Surprise" in page.read_text()
    before = (run / "model.safetensors").read_bytes()
    words = ["train", str(run / "recipe.toml"), f"--out={run}", "--resume", "--quiet"]
    assert regard.cli.run(words) == 0
    assert (run / "model.safetensors").read_bytes() == before


def test_a_chosen_order_is_logged_and_stored(tmp_path, capsys):
    path = tmp_path / "words.txt"
    draw = random.Random(2)
    words = ["".join(draw.choices(["abc", "abc", "abd"], k=7)) for _ in range(300)]
    path.write_text("\n".join(words) + "\n")
    assert regard.cli.run(["train", str(path), "--model=map", f"--out={tmp_path / 'run'}"]) == 0
    assert "by the likelihood of the validation part" in capsys.readouterr().err
    stored = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    model = Run(tmp_path / "run").model()
    assert stored["order"] == model.order == len(model.alphas) >= 1
    assert "order = 0" in (tmp_path / "run" / "recipe.toml").read_text()
    low, high = model.interval([4, 5], 6)  # c after ab: probable, not certain
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
    ((sequence,),) = regard.load(tmp_path / "run").generate(["the "], Greedy(), max_new=60)
    assert len(sequence.ids) == 60 or sequence.finished  # max_len does not limit generation


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model=kneser-ney", "--set=model.order=0"], "order must be from 1 to 64, got 0"),
        (["--model=map", "--set=model.prior=flat"], "'hierarchical' or 'symmetric'"),
        (["--model=bigram", "--set=model.order=2"], "unknown key 'model.order'"),
    ],
)
def test_an_invalid_setting_is_one_line_that_names_the_key(options, message, tmp_path, capsys):
    path = tmp_path / "words.txt"
    path.write_text("ab\nba\n" * 20)
    assert regard.cli.run(["train", str(path), f"--out={tmp_path / 'run'}", *options]) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error
    assert not (tmp_path / "run").exists()
