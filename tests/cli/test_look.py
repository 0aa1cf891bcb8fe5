"""`regard look` on language models: what is read, what is written, and errors in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from regard import api, cli
from regard.errors import UsageError, UserError
from regard.evaluation.eval_data import shard_of
from regard.look import language_page
from regard.models.decoder import Decoder, DecoderConfig
from regard.models.ngrams import Bigram, CountConfig
from regard.models.recurrent import LSTMModel, RecurrentConfig
from regard.planning import plan_recipe
from regard.run import weights as weights_of
from regard.run import write_config
from regard.storage import write_json, write_tensors
from regard.tokenizers import Characters

TOKENIZER = Characters.train(["abcb"])
SHAPE = {"n_layers": 2, "d_model": 12, "n_heads": 3, "n_kv_heads": 3, "d_head": 4, "d_ff": 10}


@pytest.fixture
def look():
    """Run `regard look ARGUMENTS`."""
    if not cli.app.registered_commands:
        cli._fill()
    return lambda *arguments: CliRunner().invoke(cli.app, ["look", *map(str, arguments)])


@pytest.fixture(autouse=True)
def short_samples(monkeypatch):
    monkeypatch.setattr(language_page, "LONGEST", 13)


def decoder():
    torch.manual_seed(0)
    return Decoder(TOKENIZER.vocab_size, DecoderConfig(**SHAPE, max_len=11)).eval()


def lstm():
    torch.manual_seed(0)
    return LSTMModel(TOKENIZER.vocab_size, RecurrentConfig(n_layers=1, d_model=7)).eval()


def bigram():
    model = Bigram(TOKENIZER.vocab_size, CountConfig())
    model.fit(shard_of(["abcb"], TOKENIZER), None, print)
    return model


def run_folder(folder, model, name, **facts):
    folder.mkdir()
    TOKENIZER.save(folder / "tokenizer.json")
    write_config(folder, name, model)
    write_tensors(folder / "model.safetensors", weights_of(model))
    if facts:
        write_json(folder / "regard.json", facts)
    return folder


def test_the_command_writes_the_page_and_the_figures_and_prints_where(look, tmp_path):
    run = run_folder(tmp_path / "run", decoder(), "transformer")
    page, folder = tmp_path / "look.html", tmp_path / "figures"
    result = look(run, "abba" * 5, "--out", page, "--svg", folder, "--beams", 2)
    assert result.exit_code == 0, result.output
    first, *figures = result.stdout.splitlines()
    assert first == str(page) and sorted(figures) == sorted(map(str, folder.iterdir()))
    assert len(figures) >= 4 and figures[0].startswith(str(folder / "01-"))
    assert "first 11 of 21 tokens" in result.stderr
    html = page.read_text()
    assert "run reads “abbaabbaab”" in html
    assert "first 11 of 21 tokens" in html
    assert all(Path(figure).read_text().startswith("<?xml") for figure in figures)


def test_a_barely_trained_run_is_said_to_be_one(look, tmp_path):
    run = run_folder(tmp_path / "run", lstm(), "lstm", epochs=0.25, steps=3)
    assert look(run, "ab", "--out", tmp_path / "look.html").exit_code == 0
    page = (tmp_path / "look.html").read_text()
    assert 'class="notice" role="note">This model is barely trained' in page


@pytest.mark.parametrize("form", ["lines", "text"])
def test_without_a_text_a_held_out_record_is_read(look, form, tmp_path):
    names = [a + b + c for a in "abcd" for b in "aeiou" for c in "lmnrs"]
    (tmp_path / "names.txt").write_text("\n".join(names) + "\n")
    recipe, _ = plan_recipe(
        [tmp_path / "names.txt"], model={"name": "bigram"}, data={"format": form}
    )
    run = api.train_recipe(recipe, tmp_path / "run").run
    result = look(run, "--out", tmp_path / "look.html")
    assert result.exit_code == 0, result.output
    split, shard = api.load(run).held_out()
    assert f"of the {split} split of the run" in result.stderr
    text = api.load(run).tokenizer.decode(shard.record(0))
    shown = text if form == "lines" else " ".join(text.split())[:40]
    assert f"run reads “{shown}" in (tmp_path / "look.html").read_text()


def test_without_a_text_or_data_the_model_provides_one(look, tmp_path):
    run = run_folder(tmp_path / "run", bigram(), "bigram")
    result = look(run, "--out", tmp_path / "look.html")
    assert result.exit_code == 0, result.output
    assert "a text that the model generates" in result.stderr
    assert "run reads" in (tmp_path / "look.html").read_text()


def test_unknown_symbols_are_counted(look, tmp_path):
    run = run_folder(tmp_path / "run", lstm(), "lstm")
    result = look(run, "axby", "--out", tmp_path / "look.html")
    assert result.exit_code == 0, result.output
    assert "2 symbols are not in the vocabulary" in result.stderr


def test_what_cannot_be_written_is_one_line(look, tmp_path):
    run = run_folder(tmp_path / "run", lstm(), "lstm")
    result = look(run, "ab", "--png", tmp_path / "look.png")
    assert isinstance(result.exception, UserError)
    assert "figures go into a folder, a file each" in str(result.exception)
    result = look(run, "ab", "--out", tmp_path / "nowhere" / "look.html")
    assert isinstance(result.exception, UserError)
    assert f"cannot write {tmp_path / 'nowhere' / 'look.html'}" in str(result.exception)


def test_shapes_are_printed_for_any_model_and_no_page_is_written(look, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = run_folder(tmp_path / "run", decoder(), "transformer")
    result = look(run, "abba", "--shapes")
    assert result.exit_code == 0, result.output
    assert "(B, H, T, T)" in result.stdout and "(1, 3, 5, 5)" in result.stdout
    assert "query positions" in result.stdout and not (tmp_path / "look.html").exists()


def test_the_prior_of_a_transition_needs_the_training_data(look, tmp_path):
    run = run_folder(tmp_path / "run", lstm(), "lstm")
    result = look(run, "ab", "--prior", "--out", tmp_path / "prior.html")
    assert isinstance(result.exception, UserError) and "no training data" in str(result.exception)


def test_steps_follow_one_token_and_positions_are_checked(look, tmp_path):
    run, page = (
        run_folder(tmp_path / "run", lstm(), "lstm", epochs=0.25, steps=3),
        tmp_path / "s.html",
    )
    result = look(run, "abcb", "--steps", "--position", "3", "--out", page)
    assert result.exit_code == 0, result.output
    assert "Step by step: “b”, 3 of 5" in result.stderr and result.stdout.strip() == str(page)
    html = page.read_text()
    assert "This model is barely trained" in html and "Layer 1 › Forget gate" in html
    wrong = look(run, "abcb", "--steps", "--position", "9", "--out", page)
    assert isinstance(wrong.exception, UsageError)
    assert str(wrong.exception) == "position must be from 1 to 5 (5 tokens are read), got 9"
