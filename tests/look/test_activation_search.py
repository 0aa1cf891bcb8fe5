"""Which records excite a unit most, against reading every record alone."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import regard
from regard import cli
from regard.api import train_recipe
from regard.errors import UsageError, UserError
from regard.layers.embeddings import Inputs
from regard.layers.tap import Tap
from regard.look import activation_search
from regard.look.activation_search import open_index
from regard.look.records import mark_position, split_at
from regard.planning import plan_recipe
from regard.tokenizers import Words

SHAPE = ["model.n_layers=2", "model.d_model=16", "model.n_heads=2", "model.n_kv_heads=2"]
SHAPE += ["model.d_head=8", "model.d_ff=12", "train.steps=2", "train.batch_tokens=128"]
SHAPE += ["train.device=cpu", "model.name=transformer"]
HIDDEN = "block.1.feedforward.hidden"


@pytest.fixture(scope="module")
def generator(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    random = np.random.default_rng(0)
    words = ["".join(random.choice(list("abcdef"), n)) for n in random.integers(1, 12, 200)]
    (folder / "words.txt").write_text("\n".join(words) + "\n")
    recipe, _ = plan_recipe([folder / "words.txt"], assignments=SHAPE)
    train_recipe(recipe, folder / "run")
    return regard.load(folder / "run")


@pytest.fixture(scope="module")
def predictor(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labels")
    random = np.random.default_rng(0)
    rows = [("".join(random.choice(list("ACGT"), 12)), "ab"[i % 2]) for i in range(120)]
    (folder / "t.csv").write_text("seq,kind\n" + "".join(f"{a},{b}\n" for a, b in rows))
    target = ["data.target=kind", "task.name=label"]
    recipe, _ = plan_recipe([folder / "t.csv"], assignments=[*SHAPE, *target])
    train_recipe(recipe, folder / "run")
    return regard.load(folder / "run")


def strongest(pipeline, name, unit, ends):
    """Return the value, record and position of a unit in each record, the strongest first."""
    found = []
    shard = regard.data.corpus.reopen(pipeline.run.path).train
    for record in range(shard.records):
        ids = torch.from_numpy(np.asarray(shard.record(record), np.int64))[None]
        tap = Tap([name])
        with torch.no_grad():
            pipeline.model.read_batch(Inputs(ids, torch.ones_like(ids)), tap=tap)
        x = tap.activations[name][0]
        values = (x[unit].norm(dim=-1) if x.dim() == 3 else x[:, unit])[1:ends]  # without <S>
        if len(values):
            found.append((float(values.max()), record, 1 + int(values.argmax())))
    return sorted(found, reverse=True)


@pytest.mark.parametrize("name", [HIDDEN, "block.0.attention.heads"])
def test_the_strongest_records_of_a_unit_are_those_of_reading_each_alone(generator, name):
    index = open_index(generator, name)
    assert index.units == {HIDDEN: 12, "block.0.attention.heads": 2}[name]
    for unit in (0, 1):
        matches = index.search(unit, 5)
        expected = strongest(generator, name, unit, -1)
        places = {record: position for _, record, position in expected}
        for match, (value, _, _) in zip(matches, expected, strict=False):
            assert match.value == pytest.approx(value, abs=1e-5)
            assert match.position == places[match.record]
    assert index.note == f"all {len(index.records)} records of the train split"


def test_the_command_prints_what_python_finds(generator):
    if not cli.app.registered_commands:
        cli._fill()
    name = "block.0.attention.heads"
    words = ["look", str(generator.run), "--excites", f"{name}:1", "--json"]
    document = json.loads(CliRunner().invoke(cli.app, words).stdout)
    expected = strongest(generator, name, 1, -1)[:10]
    values = [one["value"] for one in document["records"]]
    assert values == pytest.approx([value for value, _, _ in expected], abs=1e-5)
    assert document["unit"] == 1 and "train split" in document["note"]
    refused = CliRunner().invoke(cli.app, [*words[:3], name])
    assert "name an activation and a unit" in str(refused.exception)


def test_the_index_says_how_far_it_is(generator):
    told = []
    name = "block.1.feedforward.output"
    open_index(generator, name, progress=lambda activity, done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1] == len(open_index(generator, name).records)


def test_spaces_stand_around_the_token_in_brackets():
    words = Words.train(["the king of the sea"])
    record = np.array([words.start, *words.encode("the king of the sea"), words.end])
    assert mark_position(words, record, 2) == "the [king] of the sea"
    assert split_at(words, record[1:-1], 0) == ("", "the", " king of the sea")  # a block


def test_a_match_shows_the_token_in_its_text(generator):
    index = open_index(generator, HIDDEN)
    for match in index.search(3):
        record = index.shard.record(match.record)
        token = generator.tokenizer.text(int(record[match.position]))
        assert f"[{token}]" in match.text
        around = generator.tokenizer.decode_record(record)
        assert match.text.replace("[", "").replace("]", "") in around


def test_predictors_are_searched_over_whole_records(predictor):
    name = "block.0.output"
    match = open_index(predictor, name).search(4, 1)[0]
    value, record, position = strongest(predictor, name, 4, -1)[0]
    assert match.value == pytest.approx(value, abs=1e-5)
    assert (match.record, match.position) == (record, position)


def test_an_index_is_kept_and_built_again_when_it_is_stale(generator, monkeypatch):
    lines = []
    path = generator.run / "look" / f"{HIDDEN}-valid.safetensors"
    first = open_index(generator, HIDDEN, "valid", log=lines.append)
    again = open_index(generator, HIDDEN, "valid", log=lines.append)
    assert lines == [f"building an index of {HIDDEN}"] and path.exists()
    assert torch.equal(first.values, again.values)
    with torch.no_grad():
        generator.model.blocks[0].feedforward.down.weight.mul_(2)
    changed = open_index(generator, HIDDEN, "valid", log=lines.append)
    assert len(lines) == 2 and not torch.equal(first.values, changed.values)
    with torch.no_grad():
        generator.model.blocks[0].feedforward.down.weight.div_(2)
    path.write_bytes(b"damaged")
    assert torch.equal(open_index(generator, HIDDEN, "valid").values, first.values)
    monkeypatch.setattr(activation_search, "MOST_RECORDS", 7)
    sample = open_index(generator, HIDDEN, "train")
    assert sample.note.startswith("7 of ") and sample.note.endswith("evenly spaced")
    assert len(sample.search(0, 100)) == 7


def test_running_text_is_searched_in_blocks(tmp_path):
    random = np.random.default_rng(0)
    text = "".join(random.choice(list("abcdef \n"), 6000))
    (tmp_path / "t.txt").write_text(text)
    recipe, _ = plan_recipe([tmp_path / "t.txt"], assignments=[*SHAPE, "data.format=text"])
    train_recipe(recipe, tmp_path / "run")
    index = open_index(regard.load(tmp_path / "run"), HIDDEN)
    assert "blocks of 128 tokens, evenly spaced over the train split" in index.note
    assert index.search(0, 1)[0].value == pytest.approx(float(index.values[:, 0].max()))


def test_what_cannot_be_searched_is_said(generator):
    with pytest.raises(UserError, match=r"no activation of tokens is called 'block.1.hidden'"):
        open_index(generator, "block.1.hidden")
    with pytest.raises(UsageError, match="is no name of an activation"):
        open_index(generator, "../model")
    with pytest.raises(UsageError, match="has units 0 to 11, got 12"):
        open_index(generator, HIDDEN).search(12)
