"""What `regard look` reads, the facts of its run, and the verb itself."""

from __future__ import annotations

import pytest
import torch

from regard import api
from regard.errors import UserError
from regard.evaluation.eval_data import shard_of
from regard.look import language_page
from regard.look.page_inputs import figure_words, file_named, fitted, run_facts, text_of
from regard.models.counts import Bigram, CountConfig
from regard.models.decoder import Decoder, DecoderConfig
from regard.models.recurrent import LSTMConfig, LSTMModel
from regard.run import weights as weights_of
from regard.run import write_config, write_json, write_tensors
from regard.tokenizers import Characters

TOKENIZER = Characters.train(["abcb"])
SHAPE = {"n_layers": 2, "d_model": 12, "n_heads": 3, "n_kv_heads": 3, "d_head": 4, "d_ff": 10}


@pytest.fixture(autouse=True)
def short_samples(monkeypatch):
    monkeypatch.setattr(language_page, "LONGEST", 13)


def decoder():
    torch.manual_seed(0)
    return Decoder(TOKENIZER.vocab_size, DecoderConfig(**SHAPE, max_len=11)).eval()


def lstm():
    torch.manual_seed(0)
    return LSTMModel(TOKENIZER.vocab_size, LSTMConfig(n_layers=1, d_model=7)).eval()


def bigram():
    model = Bigram(TOKENIZER.vocab_size, CountConfig())
    model.fit(shard_of(["abcb"], TOKENIZER), None, print)
    return model


def test_a_text_too_long_is_cut_and_says_so():
    assert fitted([1, 2, 3], 3) == ([1, 2, 3], "")
    ids, note = fitted([1, 2, 3, 4], 3)
    assert ids == [1, 2, 3]
    assert "first 3 of 4 tokens" in note


def test_a_file_gives_its_first_record_or_its_beginning(tmp_path):
    path = tmp_path / "names.txt"
    path.write_text("\nanna\nbob\n" * 9)
    assert file_named(str(path)) == path
    assert file_named("anna" * 999) is None  # no path is that long
    assert file_named("an\0na") is None
    assert text_of(path, running=False, most=3) == "anna"
    assert text_of(path, running=True, most=7) == "\nanna\nb"


def test_an_infinite_figure_is_told_in_words():
    assert (
        figure_words({"value": None, "infinite": True, "impossible": 3})
        == "infinite (3 impossible)"
    )
    assert figure_words({"value": 1.25, "low": 1.0, "high": 1.5}) == "1.250 [1.000, 1.500]"


def run_folder(folder, model, name, **facts):
    folder.mkdir()
    TOKENIZER.save(folder / "tokenizer.json")
    write_config(folder, name, model)
    write_tensors(folder / "model.safetensors", weights_of(model))
    if facts:
        write_json(folder / "regard.json", facts)
    return folder


def test_the_facts_of_a_run_come_from_its_files(tmp_path):
    figure = {"value": 2.5, "low": 2.25, "high": 2.75}
    metrics = {"valid": {"bits_per_symbol": figure}}
    model = decoder()
    run = run_folder(tmp_path / "run", model, "transformer", steps=12, metrics=metrics)
    facts = dict(run_facts(run, model, TOKENIZER))
    assert facts["model"] == "transformer"
    assert facts["parameters"] == sum(p.numel() for p in model.parameters())
    assert facts["heads"] == 3 and facts["context"] == 11 and facts["steps"] == 12
    assert facts["bits per symbol, validation"] == "2.500 [2.250, 2.750]"
    (run / "regard.json").write_text("[]")
    with pytest.raises(UserError, match=r"regard\.json is damaged"):
        run_facts(run, model, TOKENIZER)


def test_the_verb_writes_the_page_and_the_picture_and_prints_where(look, tmp_path):
    run = run_folder(tmp_path / "run", decoder(), "transformer")
    page, picture = tmp_path / "look.html", tmp_path / "look.svg"
    result = look(run, "abba" * 5, "--out", page, "--png", picture, "--beams", 2)
    assert result.exit_code == 0, result.output
    assert result.stdout.split() == [str(page), str(picture)]
    assert "first 11 of 21 tokens" in result.stderr
    html = page.read_text()
    assert "run reads “abbaabbaab”" in html
    assert "first 11 of 21 tokens" in html
    assert picture.read_text().startswith("<?xml")


@pytest.mark.parametrize("form", ["lines", "text"])
def test_without_a_text_what_was_held_out_is_read(look, form, tmp_path):
    names = [a + b + c for a in "abcd" for b in "aeiou" for c in "lmnrs"]
    (tmp_path / "names.txt").write_text("\n".join(names) + "\n")
    recipe, _ = api.plan([tmp_path / "names.txt"], model={"name": "bigram"}, data={"format": form})
    run = api.train(recipe, tmp_path / "run").run
    result = look(run, "--out", tmp_path / "look.html")
    assert result.exit_code == 0, result.output
    side, shard = api.held_out(run, api.load(run))
    assert f"of the run's {side} data" in result.stderr
    text = api.load(run).tokenizer.decode(shard.record(0))
    shown = text if form == "lines" else " ".join(text.split())[:40]
    assert f"run reads “{shown}" in (tmp_path / "look.html").read_text()


def test_without_a_text_or_data_the_model_provides_one(look, tmp_path):
    run = run_folder(tmp_path / "run", bigram(), "bigram")
    result = look(run, "--out", tmp_path / "look.html")
    assert result.exit_code == 0, result.output
    assert "what the model itself says" in result.stderr
    assert "run reads" in (tmp_path / "look.html").read_text()


def test_unknown_symbols_are_counted_aloud(look, tmp_path):
    run = run_folder(tmp_path / "run", lstm(), "lstm")
    result = look(run, "axby", "--out", tmp_path / "look.html")
    assert result.exit_code == 0, result.output
    assert "2 symbols are not in the vocabulary" in result.stderr


def test_what_cannot_be_written_is_one_line(look, tmp_path):
    run = run_folder(tmp_path / "run", lstm(), "lstm")
    wrong = look(run, "ab", "--png", tmp_path / "look.gif")
    assert isinstance(wrong.exception, UserError)
    assert "--png must end in .png" in str(wrong.exception)
    wrong = look(run, "ab", "--out", tmp_path / "nowhere" / "look.html")
    assert isinstance(wrong.exception, UserError)
    assert f"cannot write {tmp_path / 'nowhere' / 'look.html'}" in str(wrong.exception)
