"""What a run stores: sound runs pass on their own files, and each damage is found."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import tokenizers
import torch
from small_runs import LETTERS, decoder, detail, failed, lstm, names, save, wrap
from tokenizers import decoders, models, pre_tokenizers

from regard.interop.hugging_face import export_hf, import_hf
from regard.models.ngrams import Bigram, CountConfig
from regard.models.vision import VisionTransformer, vit
from regard.registry import TOKENIZERS
from regard.run import Run
from regard.storage import read_tensors, write_tensors
from regard.tokenizers import Characters, Patches
from regard.training.optimizer import Optimizer
from regard.verify import LM_CHECKS, verify

TOKENIZER = "tokenizer round trip"
RESUME = "resume bit-equality"


@pytest.mark.parametrize("kind", ["bytes", "words", "bpe"])
def test_texts_made_up_from_any_vocabulary_come_back(kind, tmp_path):
    tokenizer = TOKENIZERS[kind].train(["the cat sat on the mat the cat", "é ü 漢字 the"] * 3)
    model = Bigram(tokenizer.vocab_size, CountConfig(max_len=5))
    report = verify(save(tmp_path / "run", "bigram", model, tokenizer))
    assert not failed(report), report
    assert "20 texts made up" in detail(report, TOKENIZER)


def test_an_imported_folder_with_a_foreign_tokenizer_passes(tmp_path):
    vocab = {"[UNK]": 0, "<s>": 1, "</s>": 2, "▁": 3, "a": 4, "b": 5, "▁a": 6, "c": 7, "ba": 8}
    foreign = tokenizers.Tokenizer(models.BPE(vocab, [("▁", "a"), ("b", "a")], unk_token="[UNK]"))
    foreign.pre_tokenizer = pre_tokenizers.Metaspace()
    foreign.decoder = decoders.Metaspace()
    export_hf(decoder(tmp_path / "run", vocab_size=11), tmp_path / "hf")
    foreign.save(str(tmp_path / "hf" / "tokenizer.json"))
    specials = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "[UNK]"}
    (tmp_path / "hf" / "tokenizer_config.json").write_text(json.dumps(specials))
    import_hf(tmp_path / "hf", tmp_path / "imported")
    report = verify(tmp_path / "imported")
    assert not failed(report), report
    assert names(report) == LM_CHECKS.keys() - {RESUME}


def test_a_run_of_records_passes_every_check_on_its_own_files(language_runs):
    report = verify(language_runs / "records")
    assert [check.name for check in report.checks] == list(LM_CHECKS)
    assert not failed(report), report
    assert "agree with the stored ids" in detail(report, TOKENIZER)
    assert "killed in step 3, resumed from step 2" in detail(report, RESUME)


def test_a_run_of_text_passes_on_its_own_files(language_runs):
    report = verify(language_runs / "text")
    assert names(report) == LM_CHECKS.keys() - {"fused = explicit"}
    assert not failed(report), report
    assert "1 agree with the stored ids" in detail(report, TOKENIZER)


def test_a_counting_run_is_fitted_again(language_runs):
    report = verify(language_runs / "counts")
    assert not failed(report), report
    assert "equal to the run's" in detail(report, RESUME)


def test_a_run_whose_files_or_data_are_gone_is_verified_with_what_is_left(language_runs, copy_run):
    run = copy_run(language_runs / "counts")
    manifest = run / "data" / "manifest.json"
    manifest.write_text(manifest.read_text().replace("names.txt", "moved.txt"))
    report = verify(run)
    assert not failed(report), report
    assert "of the run's own data" in detail(report, TOKENIZER)
    shutil.rmtree(run / "data")
    report = verify(run)
    assert not failed(report), report
    assert RESUME not in names(report)


def test_weights_that_come_back_changed_fail_and_are_named(tmp_path, monkeypatch):
    stored_model = Run.model

    def load(run):
        model = stored_model(run)
        weight = model.head.weight.data
        weight[3, 2] = torch.nextafter(weight[3, 2], torch.tensor(9.0))
        return model

    folder = lstm(tmp_path / "run")
    monkeypatch.setattr(Run, "model", load)
    report = verify(folder)
    assert failed(report) == {"save/load identity"}
    assert "head.weight" in detail(report, "save/load identity")


def test_a_tokenizer_with_two_letters_exchanged_fails(language_runs, copy_run):
    run = copy_run(language_runs / "counts")
    path = run / "tokenizer.json"
    document = json.loads(path.read_text())
    vocab = document["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    path.write_text(json.dumps(document))
    report = verify(run)
    assert failed(report) == {TOKENIZER}
    assert "the data holds other ids" in detail(report, TOKENIZER)


def test_a_damaged_tokenizer_fails_and_the_model_is_still_checked(language_runs, copy_run):
    run = copy_run(language_runs / "counts")
    (run / "tokenizer.json").write_text("{")
    report = verify(run)
    assert failed(report) == {TOKENIZER, RESUME}
    assert "not a JSON file" in detail(report, TOKENIZER)


def test_a_tokenizer_too_large_for_the_model_fails(tmp_path):
    report = verify(decoder(tmp_path / "run", vocab_size=10))
    assert failed(report) == {TOKENIZER}
    assert detail(report, TOKENIZER) == "tokenizer.json has 11 tokens, config.json says 10"


def test_texts_that_do_not_come_back_fail(tmp_path, monkeypatch):
    wrap(monkeypatch, Characters, "decode", lambda text, *_: text.replace("c", "C"))
    assert failed(verify(lstm(tmp_path / "run"))) == {TOKENIZER}


def test_ids_that_the_library_does_not_give_fail(tmp_path, monkeypatch):
    wrap(monkeypatch, Characters, "encode_batch", lambda ids, *_: (ids[0][::-1], ids[1]))
    report = verify(lstm(tmp_path / "run"))
    assert failed(report) == {TOKENIZER}
    assert "the tokenizers library gives other ids" in detail(report, TOKENIZER)


def test_images_that_do_not_come_back_fail(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    featurizer = Patches.train(random.integers(0, 256, (3, 6, 9, 1), dtype=np.uint8), patch=3)
    torch.manual_seed(0)
    config = dataclasses.replace(vit(1, 64), n_outputs=2, **featurizer.model_config)
    model = VisionTransformer(featurizer.vocab_size, config)
    run = save(tmp_path / "run", "transformer", model)
    (run / "tokenizer.json").unlink()
    featurizer.save(run / featurizer.file)
    report = verify(run)
    assert not failed(report), report
    assert "2 images come back" in detail(report, TOKENIZER)
    wrap(monkeypatch, Patches, "decode_record", lambda image, *_: 255 - image)
    assert failed(verify(run)) == {TOKENIZER}


def test_an_optimizer_that_forgets_its_state_fails(language_runs, monkeypatch):
    monkeypatch.setattr(Optimizer, "load", lambda self, tensors: None)
    assert failed(verify(language_runs / "records")) == {RESUME}


def test_a_count_that_was_changed_fails(language_runs, copy_run):
    run = copy_run(language_runs / "counts")
    tensors = read_tensors(run / "model.safetensors")
    tensors["counts"][0] += 1
    write_tensors(run / "model.safetensors", tensors)
    report = verify(run)
    assert failed(report) == {RESUME}
    assert detail(report, RESUME).startswith("counts differs")
    assert len(LETTERS) + 4 == Run(run).model().vocab_size
