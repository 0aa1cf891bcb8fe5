"""What a page is about: texts of files, and the facts of a run."""

from __future__ import annotations

import pytest
import torch

from regard.errors import UserError
from regard.look.page_inputs import find_file, format_metric, read_text, run_facts, truncate
from regard.models.decoder import Decoder, DecoderConfig
from regard.run import Run, write_config
from regard.run import weights as weights_of
from regard.storage import write_json, write_tensors
from regard.tokenizers import Characters

TOKENIZER = Characters.train(["abcb"])
SHAPE = {"n_layers": 2, "d_model": 12, "n_heads": 3, "n_kv_heads": 3, "d_head": 4, "d_ff": 10}


def decoder():
    torch.manual_seed(0)
    return Decoder(TOKENIZER.vocab_size, DecoderConfig(**SHAPE, max_len=11)).eval()


def run_folder(folder, model, name, **facts):
    folder.mkdir()
    TOKENIZER.save(folder / "tokenizer.json")
    write_config(folder, name, model)
    write_tensors(folder / "model.safetensors", weights_of(model))
    if facts:
        write_json(folder / "regard.json", facts)
    return Run.open(folder)


def test_a_text_too_long_is_cut_and_says_so():
    assert truncate([1, 2, 3], 3) == ([1, 2, 3], "")
    ids, note = truncate([1, 2, 3, 4], 3)
    assert ids == [1, 2, 3]
    assert "first 3 of 4 tokens" in note


def test_a_file_gives_its_first_record_or_its_beginning(tmp_path):
    path = tmp_path / "names.txt"
    path.write_text("\nanna\nbob\n" * 9)
    assert find_file(str(path)) == path
    assert find_file("anna" * 999) is None  # no path is that long
    assert find_file("an\0na") is None
    assert read_text(path, running=False, most=3) == "anna"
    assert read_text(path, running=True, most=7) == "\nanna\nb"


def test_an_infinite_metric_is_formatted_in_words():
    assert (
        format_metric({"value": None, "infinite": True, "impossible": 3})
        == "infinite (3 impossible)"
    )
    assert format_metric({"value": 1.25, "low": 1.0, "high": 1.5}) == "1.250 [1.000, 1.500]"


def test_the_facts_of_a_run_come_from_its_files(tmp_path):
    metric = {"value": 2.5, "low": 2.25, "high": 2.75}
    metrics = {"valid": {"bits_per_symbol": metric}}
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
