"""Pre-training by the command line: alone, before labels, from a run; stopped and gone on with."""

import json
import random
import shutil

import pytest
from safetensors.numpy import load_file

STEPS = ["--set", "train.steps=8", "--set", "train.checkpoint_every=4"]
SMALL = [
    "--set", "model.n_layers=1", "--set", "model.d_model=16", "--set", "train.batch_tokens=256",
    *STEPS, "--quiet",
]  # fmt: skip
LABELS = ["--input", "text", "--target", "more"]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Letters, and which of a and b is more frequent."""
    draw, rows = random.Random(0), ["text\tmore"]
    for _ in range(160):
        text = "".join(draw.choices("aabbcde", k=draw.randint(6, 14)))
        rows.append(f"{text}\t{'a' if text.count('a') > text.count('b') else 'b'}")
    path = tmp_path_factory.mktemp("labelled") / "letters.tsv"
    path.write_text("\n".join(rows) + "\n")
    return path


def same(one, two):
    one, two = (load_file(run / "model.safetensors") for run in (one, two))
    return set(one) == set(two) and all((one[name] == two[name]).all() for name in one)


def forget(run, step):
    """As if it had been killed after an earlier step."""
    shutil.rmtree(run / "checkpoints" / f"step-{step:06d}")
    (run / "regard.json").unlink()


def test_a_masked_run_trains_measures_embeds_and_resumes(cli, tmp_path, text):
    words = ["train", text, "--task", "masked", *SMALL, "--set", "model.max_len=24"]
    result = cli(*words, "--out", "whole", "--json")
    assert result.code == 0, result.err
    figures = result.document["metrics"]["test"]
    assert set(figures) == {"nats_per_token", "accuracy"}
    result = cli("evaluate", "whole", "--json")
    assert result.document["metrics"]["accuracy"] == figures["accuracy"]
    result = cli("evaluate", "whole", text, "--against", "whole")
    assert result.code == 0 and "no difference" in result.out
    (tmp_path / "lines.txt").write_text("the cat sat\na mat\n")
    result = cli("embed", "whole", "lines.txt")
    widths = [len(line.split("\t")) for line in result.out.splitlines()]
    assert result.code == 0 and widths == [18, 18]  # with id and note
    result = cli("predict", "whole", "lines.txt")
    assert result.code == 1 and "--pretrain whole" in result.err
    result = cli("generate", "whole")
    assert result.code == 1 and "task masked" in result.err
    result = cli("look", "whole", "--out", "look.html")
    assert result.code == 0 and "Surprise when masked" in (tmp_path / "look.html").read_text()
    result = cli("look", "whole", "the <mask> sat", "--out", "look.html")
    assert result.code == 0 and "Masked tokens" in (tmp_path / "look.html").read_text()
    shutil.copytree(tmp_path / "whole", tmp_path / "parts")
    forget(tmp_path / "parts", 8)
    result = cli("train", text, "--out", "parts", "--resume", "--quiet")
    assert result.code == 0 and same(tmp_path / "whole", tmp_path / "parts"), result.err


def test_labels_are_learned_after_pretraining_and_from_where_it_stopped(cli, tmp_path, table):
    words = ["train", table, *LABELS, "--pretrain", table, *SMALL]
    result = cli(*words, "--out", "whole", "--json")
    assert result.code == 0, result.err
    assert result.document["run"] == "whole" and "accuracy" in result.document["metrics"]["test"]
    inner = tmp_path / "whole" / "pretrained"
    assert json.loads((inner / "config.json").read_text())["task"] == "masked"
    one, two = (  # what the labels hold out, pre-training has not seen either
        json.loads((run / "data" / "manifest.json").read_text())["facts"]["splits"]
        for run in (tmp_path / "whole", inner)
    )
    assert one == two and one["test"]["records"] > 0
    # killed while pre-training
    shutil.copytree(tmp_path / "whole", tmp_path / "early")
    for path in (tmp_path / "early").iterdir():
        if path.name not in ("recipe.toml", "pretrained"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    recipe = tmp_path / "early" / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("whole", "early"))
    forget(tmp_path / "early" / "pretrained", 8)
    assert cli("train", table, "--out", "early", "--resume", "--quiet").code == 0
    assert same(tmp_path / "whole", tmp_path / "early")
    assert same(inner, tmp_path / "early" / "pretrained")
    # killed later, when what it began from is gone
    shutil.copytree(tmp_path / "whole", tmp_path / "late")
    forget(tmp_path / "late", 8)
    shutil.rmtree(inner)
    result = cli("train", table, "--out", "late", "--resume", "--quiet")
    assert result.code == 0 and same(tmp_path / "whole", tmp_path / "late"), result.err


def test_what_is_begun_from_decides_shape_and_tokens(cli, tmp_path, table, words):
    result = cli("train", words, "--task", "masked", *SMALL, "--out", "first")
    assert result.code == 0, result.err
    quick = [*STEPS, "--set", "train.batch_tokens=256"]
    result = cli("train", table, *LABELS, "--pretrain", "first", *quick, "--out", "second")
    assert result.code == 0, result.err
    assert "tensors with" in result.err and "begin anew" in result.err
    one, two = (json.loads((tmp_path / n / "config.json").read_text()) for n in ("first", "second"))
    assert one["vocab_size"] == two["vocab_size"] and two["config"]["d_model"] == 16
    tokens = [(tmp_path / n / "tokenizer.json").read_bytes() for n in ("first", "second")]
    assert tokens[0] == tokens[1]
    recipe = tmp_path / "again.toml"
    text = (tmp_path / "second" / "recipe.toml").read_text()
    recipe.write_text(text.replace(str(tmp_path / "first"), "first"))  # relative to the recipe
    result = cli("train", recipe, "--out", "third", "--quiet")
    assert result.code == 0 and same(tmp_path / "second", tmp_path / "third"), result.err


def test_wrong_use_is_told_and_leaves_nothing(cli, tmp_path, table, words):
    begin = ["train", table, *LABELS, *SMALL, "--out", "run", "--pretrain"]
    for more, told in (
        (["none.txt"], "no file or run folder at none.txt"),
        ([table, "--model", "lstm"], "--pretrain is for transformer, not lstm"),
        ([table, "--set", "task.mask=1.5"], "mask must be above 0 and below 1"),
        ([table, "--set", "model.preset=gpt"], "model.preset"),
    ):
        result = cli(*begin, *more)
        assert result.code in (1, 2) and told in result.err, result.err
        assert not (tmp_path / "run").exists()
    result = cli("train", words, "--pretrain", words, *SMALL, "--out", "run")
    assert result.code == 2 and "task next" in result.err
    result = cli("train", words, "--tokenizer", "pretrained", *SMALL, "--out", "run")
    assert result.code == 2 and "train.init_from" in result.err
    result = cli("compare", words, "--task", "masked", "--out", "run")
    assert result.code == 2 and "task masked" in result.err
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    result = cli(*begin, empty)
    assert result.code == 1 and not (tmp_path / "run").exists(), result.err
    assert cli(*begin, table).code == 0
    result = cli(*begin, table)
    assert result.code == 1 and "--resume" in result.err


def test_minutes_are_shared_half_and_half(table, tmp_path):
    from regard.planning import plan_both

    first, then, lines = plan_both(
        [table], table, tmp_path / "run", data={"input": "text", "target": "more"},
        train={"minutes": 3.0, "label_smoothing": 0.2},
    )  # fmt: skip
    assert first.train.minutes == then.train.minutes == 1.5
    assert "1.5 minutes each" in lines[-1]
    assert first.train.label_smoothing == 0 and then.train.label_smoothing == 0.2
    assert then.train.init_from == str(tmp_path / "run" / "pretrained")
    assert first.model.config.d_model == then.model.config.d_model


def test_a_masked_recipe_needs_no_other_word(words):
    from regard.planning import plan_recipe

    recipe, lines = plan_recipe([words], task={"name": "masked"})
    assert recipe.task.name == "masked" and recipe.input.tokenizer == "characters"
    assert "task masked" in lines[0] and "5 minutes" in lines[1]


def test_a_published_model_is_begun_from_with_its_own_tokens(cli, tmp_path, table):
    """A folder of theirs with a tokenizer that is not ours, imported, learns labels."""
    import tokenizers
    import torch

    from regard.models.encoder import MaskedLM as MaskedModel
    from regard.models.encoder import bert_masked
    from regard.run import Run, weights, write_config
    from regard.storage import write_json, write_tensors

    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocab = {token: id for id, token in enumerate([*specials, *"abcde"])}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="[UNK]"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    model.add_special_tokens(specials)
    run = tmp_path / "published"
    run.mkdir()
    model.save(str(run / "tokenizer.json"))
    roles = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    roles |= {"mask_token": "[MASK]", "unk_token": "[UNK]"}
    write_json(run / "tokenizer_config.json", roles)
    torch.manual_seed(0)
    bert = bert_masked(1, 64)
    net = MaskedModel(12, bert)  # two rows more than there are tokens, as published ones have
    write_config(run, "transformer", net)
    write_tensors(run / "model.safetensors", weights(net))
    options = [*STEPS, "--quiet"]
    result = cli("train", table, *LABELS, "--pretrain", run, *options, "--out", "labels")
    assert result.code == 0, result.err
    assert (tmp_path / "labels" / "tokenizer.json").read_bytes() == (
        run / "tokenizer.json"
    ).read_bytes()
    assert Run(tmp_path / "labels").model().vocab_size == 12
    assert cli("evaluate", "labels").code == 0
    result = cli("train", table, "--task", "masked", "--input", "text", *options, "--set",
                 f"train.init_from={run}", "--out", "more")  # fmt: skip
    assert result.code == 0, result.err
    from regard.api import load

    assert load(tmp_path / "more").tokenizer.mask == 4
