"""The records that excite a unit, as the page gets them, against reading each record alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.api import train_recipe
from regard.data.corpus import reopen
from regard.errors import UsageError
from regard.layers.tap import Tap
from regard.look.activation_search import open_index
from regard.planning import plan_recipe
from regard.studio.opened import Opened
from regard.studio.screens.read import Read
from regard.studio.wire import decode, encode

SHAPE = ["model.n_layers=2", "model.d_model=16", "model.n_heads=2", "model.n_kv_heads=2"]
SHAPE += ["model.d_head=8", "model.d_ff=12", "train.steps=2", "train.batch_tokens=128"]
SHAPE += ["train.device=cpu", "model.name=transformer"]
HIDDEN = "block.1.feedforward.hidden"


@pytest.fixture(scope="module")
def screen(tmp_path_factory):
    """The screen over a run of words and one of running text."""
    folder = tmp_path_factory.mktemp("excitations")
    random = np.random.default_rng(0)
    words = ["".join(random.choice(list("abcdéf🧀"), n)) for n in random.integers(1, 12, 150)]
    (folder / "words.txt").write_text("\n".join(words) + "\n")
    (folder / "book.txt").write_text("".join(random.choice(list("abcd \n🧀"), 4000)))
    for name, keys in (("words", []), ("book", ["data.format=text"])):
        recipe, _ = plan_recipe([folder / f"{name}.txt"], assignments=[*SHAPE, *keys])
        train_recipe(recipe, folder / "runs" / name)
    return Read(Opened(folder / "runs", folder))


def test_activations_are_listed_by_layer_with_their_units(screen):
    rows = screen.activations("words")["activations"]
    by_name = {row["name"]: row for row in rows}
    assert by_name[HIDDEN] == {
        "name": HIDDEN,
        "units": 12,
        "layer": "layer 2",
        "what": "units of the feed-forward part",
        "heads": False,
    }
    assert by_name["block.0.attention.heads"]["heads"]
    assert not any("weights" in name or "scores" in name for name in by_name)
    first = [row["what"] for row in rows if row["layer"] == "layer 1"][:3]
    assert first == ["units of the feed-forward part", "heads", "residual stream"]


def test_matches_are_those_of_python_and_name_the_token_to_open(screen):
    answer = screen.excite("words", HIDDEN, 3)
    assert answer["records"] is None and answer["of"] == f"{HIDDEN}:3"
    assert answer["command"] == f"regard look runs/words --excites {HIDDEN}:3"
    pipeline = screen.opened.pipeline("words")
    open_index(pipeline, HIDDEN)
    found = decode(encode(screen.excite("words", HIDDEN, 3)))["records"]
    shard, values = reopen(pipeline.run.path).train, []
    for record in range(shard.records):
        ids = torch.from_numpy(np.asarray(shard.record(record), np.int64))[None, :-1]
        tap = Tap([HIDDEN])
        with torch.no_grad():
            pipeline.model.logits(ids, tap=tap)
        values.append(float(tap.activations[HIDDEN][0, 1:, 3].max()))
    best = sorted(values, reverse=True)[:10]
    assert [one["value"] for one in found] == pytest.approx(best, abs=1e-5)
    for one in found:
        record = shard.record(one["record"])
        assert "".join(one["parts"]) == pipeline.tokenizer.decode_record(record)
        read = screen.read("words", "".join(one["parts"]))
        assert read["names"][one["at"]] == one["parts"][1]
        assert pipeline.tokenizer.text(int(record[one["position"]])) == one["parts"][1]


def test_a_block_of_running_text_is_opened_at_its_token(screen):
    open_index(screen.opened.pipeline("book"), HIDDEN)
    for one in screen.excite("book", HIDDEN, 0)["records"]:
        read = screen.read("book", "".join(one["parts"]))
        token = read["names"][one["at"]]
        assert token in (one["parts"][1], "↵") or one["parts"][1].isspace()
        assert int(read["starts"][one["at"]]) == len(one["parts"][0].encode("utf-16-le")) // 2


def test_a_job_builds_the_index(screen):
    job = screen.search("words", "block.0.attention.heads", 1)
    running = screen.opened.jobs.get(job["number"])
    running.follower.join(60)
    assert running.state == "done", list(running.lines)
    answer = screen.excite("words", "block.0.attention.heads", 1)
    assert f"{answer['records'][0]['value']:.4g}" in "\n".join(running.lines)
    with pytest.raises(UsageError, match="has units 0 to 1, got 2"):
        screen.excite("words", "block.0.attention.heads", 2)
    with pytest.raises(UsageError, match="is no name of an activation"):
        screen.search("words", "../x", 0)
