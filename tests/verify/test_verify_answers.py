"""Models that answer pass the checks that apply, and each check fails on what is broken for it."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil

import numpy as np
import pytest
import torch

import regard.api
from regard.data.batching import LabelledExamples
from regard.evaluation.eval_data import shard_of
from regard.layers.embeddings import Inputs
from regard.layers.pooling import Pooling
from regard.models.encoder import EncoderModel, bert, modern
from regard.tokenizers.characters import Characters
from regard.training.objectives import SupervisedObjective
from regard.verify import verify
from regard.verify.checks import ANSWERING

SMALL = ["model.n_layers=1", "model.d_model=16", "train.steps=3", "train.batch_tokens=256"]
FITTED = set(ANSWERING) - {
    "fused = explicit",
    "embedded together = alone",
    "gradient = finite differences",
}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Tiny models are fastest on one thread, on a busy machine by far."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Small runs of each task."""
    folder, draw = tmp_path_factory.mktemp("answering"), random.Random(0)
    lines = ["text\tmore\thas_c\thas_d\tshare\tvowels"]
    for _ in range(90):
        text = "".join(draw.choices("aabbcde", k=draw.randint(4, 12)))
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
        recipe, _ = regard.api.plan(
            [folder / "letters.tsv"],
            data={"input": "text", "target": target},
            model={"name": model},
            assignments=SMALL if model != "naive-bayes" else [],
        )
        regard.api.train(recipe, folder / name)
    return folder


def failed(report):
    return {check.name for check in report.checks if not check.ok}


@pytest.mark.parametrize("name", ["label", "labels", "value", "position-label", "counted"])
def test_every_task_passes(trained, name):
    report = verify(trained / name)
    assert not failed(report), report
    found = {check.name for check in report.checks}
    elsewhere = {"points permuted = in order"}  # of clouds alone
    left = {"probabilities sum to one"} if name == "value" else set()
    assert FITTED - found == left | elsewhere
    assert ("embedded together = alone" in found) == (name != "counted")
    assert ("fused = explicit" in found) == (name in ("label", "value"))


def test_a_run_that_lost_its_data_is_checked_for_the_rest(trained, tmp_path):
    run = shutil.copytree(trained / "label", tmp_path / "run")
    shutil.rmtree(run / "data")
    report = verify(run)
    assert not failed(report), report
    assert set(ANSWERING) - {c.name for c in report.checks} == {
        "figures on record",
        "resume bit-equality",
        "points permuted = in order",
    }


def test_a_mean_over_padding_shows(trained, monkeypatch):
    """A pooling that counts padding makes an answer depend on who stands beside."""
    monkeypatch.setattr(Pooling, "forward", lambda self, x, segments, count=None: x.mean(1))
    found = failed(verify(trained / "label"))
    assert {"batch = single", "shuffled = in order", "embedded together = alone"} <= found


def test_a_wrong_gradient_shows(trained, monkeypatch):
    monkeypatch.setattr(
        SupervisedObjective,
        "cost",
        lambda self, found, targets: (found.detach().sum() + found.sum() / 2,) * 2,
    )
    assert "gradient = finite differences" in failed(verify(trained / "value"))


def test_figures_that_were_changed_show(trained, tmp_path):
    run = shutil.copytree(trained / "label", tmp_path / "run")
    facts = json.loads((run / "regard.json").read_text())
    facts["metrics"]["test"]["accuracy"]["value"] += 0.05
    (run / "regard.json").write_text(json.dumps(facts))
    assert failed(verify(run)) == {"figures on record"}


def test_weights_that_were_changed_show(trained, tmp_path):
    """Other weights give other answers than those kept."""
    run = shutil.copytree(trained / "labels", tmp_path / "run")
    shutil.copy(trained / "labels" / "checkpoints" / "step-000003" / "model.safetensors", run)
    from regard.run import read_tensors, write_tensors

    tensors = read_tensors(run / "model.safetensors")
    tensors["head.bias"] += 0.5
    write_tensors(run / "model.safetensors", tensors)
    assert failed(verify(run)) == {"figures on record"}


def many(count):
    """Texts of one to twenty letters, as a shard of which nothing is known."""
    draw, tokenizer = random.Random(1), Characters("abcdefg")
    texts = ["".join(draw.choices("abcdefg", k=draw.randint(1, 20))) for _ in range(count)]
    shard = shard_of(texts, tokenizer)
    return dataclasses.replace(shard, targets=np.full(count, -1, np.int32)), tokenizer


@pytest.mark.parametrize("make", [modern, bert])
def test_a_thousand_records_alone_and_in_shuffled_batches_are_alike(make):
    """Logits and embeddings of each record are its own, whatever stands beside it, to 1e-5."""
    torch.manual_seed(0)
    shard, tokenizer = many(1000)
    sizes = {"n_heads": 2, "n_kv_heads": 2, "d_head": 8, "d_ff": 32, "max_len": 24}
    config = dataclasses.replace(make(1, 16), **sizes, n_outputs=5)
    model = EncoderModel(tokenizer.vocab_size, config).eval()
    order = np.random.default_rng(2).permutation(1000)
    asked, alone, beside = LabelledExamples(shard, tokenizer, 24), {}, {}
    with torch.inference_mode():
        for i in range(1000):
            ids = torch.from_numpy(np.asarray(shard.record(i)).astype(np.int64))[None]
            source = Inputs(ids, torch.ones_like(ids))
            alone[i] = torch.cat([model.answers(source)[0], model.embed(source)[0]])
        for some in np.array_split(order, 23):
            width = int(asked.sizes[some].max())
            ids, inside = torch.zeros(2, len(some), width, dtype=torch.int64)
            for row, i in enumerate(some):
                record = shard.record(i)
                ids[row, : len(record)] = torch.from_numpy(np.asarray(record).astype(np.int64))
                inside[row, : len(record)] = 1
            source = Inputs(ids, inside)
            both = torch.cat([model.answers(source), model.embed(source)], dim=1)
            beside |= dict(zip(some.tolist(), both, strict=True))
    got, expected = (torch.stack([found[i] for i in range(1000)]) for found in (beside, alone))
    assert expected.std(0).min() > 1e-3  # records differ: nothing here is alike by accident
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
