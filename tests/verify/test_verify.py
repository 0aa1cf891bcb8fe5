"""Every family passes the checks that apply, and each check fails on what is broken for it."""

import dataclasses
import json
import re
import shutil

import pytest
import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers

import regard.api
from regard.decoding import sampling
from regard.errors import UserError
from regard.interop import export_hf, import_hf
from regard.layers import attention
from regard.layers.cache import DecodeState
from regard.layers.masks import Documents
from regard.models.counts import Bigram, CountConfig
from regard.models.decoder import Decoder, DecoderConfig
from regard.models.encoder_decoder import EncoderDecoder, modern
from regard.models.language_model import IGNORE
from regard.models.recurrent import LSTMConfig, LSTMModel
from regard.run import load_model, read_tensors, weights, write_config, write_tensors
from regard.tokenizers import KINDS
from regard.tokenizers.characters import Characters
from regard.training.optimizer import Optimizer
from regard.verify import Check, Report, files, verify
from regard.verify.checks import CHECKS

LETTERS = "abcdefg"
SIZES = {"n_layers": 2, "d_model": 24, "n_heads": 6, "n_kv_heads": 3, "d_head": 4, "d_ff": 40}
ALONE = set(CHECKS) - {
    "resume bit-equality",
    "sources together = alone",
    "translated together = alone",
}  # what applies to attention without data
RECURRENT = ALONE - {"fused = explicit"}


def save(folder, name, model, tokenizer=None):
    """A run folder of a model with random weights, without recipe and data."""
    folder.mkdir(parents=True, exist_ok=True)
    write_config(folder, name, model)
    write_tensors(folder / "model.safetensors", weights(model))
    (tokenizer or Characters(LETTERS)).save(folder / "tokenizer.json")
    return folder


def decoder(folder, vocab_size=11, **options):
    torch.manual_seed(5)
    model = Decoder(vocab_size, DecoderConfig(**{**SIZES, "max_len": 20, **options}))
    return save(folder, "transformer", model)


def lstm(folder):
    torch.manual_seed(6)
    config = LSTMConfig(n_layers=2, d_model=9, max_len=17)
    return save(folder, "lstm", LSTMModel(11, config))


def translator(folder):
    torch.manual_seed(7)
    config = dataclasses.replace(modern(2, 24), n_heads=2, n_kv_heads=2, d_head=8, max_len=20)
    model = EncoderDecoder(11, dataclasses.replace(config, dropout=0.0, tied=False))
    with torch.no_grad():
        for block in model.decoder.blocks:  # it looks hard at its source
            block.cross.q.weight *= 8
            block.cross.out.weight *= 12
    return save(folder, "transformer", model)


def failed(report):
    return {check.name for check in report.checks if not check.ok}


def detail(report, name):
    (found,) = (check.detail for check in report.checks if check.name == name)
    return found


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Tiny models are fastest on one thread, on a busy machine by far."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Three small runs with data and recipe: of records, of running text, and of counts."""
    folder = tmp_path_factory.mktemp("trained")
    generator = torch.Generator().manual_seed(0)

    def word():
        length = int(torch.randint(2, 9, (), generator=generator))
        return "".join(LETTERS[i] for i in torch.randint(7, (length,), generator=generator))

    lines, text = folder / "names.txt", folder / "prose.txt"
    lines.write_text("\n".join(word() for _ in range(150)) + "\n")
    text.write_text(" ".join(word() for _ in range(600)))
    steps = ["train.steps=3", "train.batch_tokens=128"]
    sized = ["model.n_layers=1", "model.d_model=32", "model.max_len=24"]
    plans = {
        "records": (lines, ["data.format=lines", "train.forbid=unseen", *steps, *sized]),
        "text": (text, ["data.format=text", "tokens.kind=bpe", "model.name=lstm", *steps, *sized]),
        "counts": (lines, ["data.format=lines", "model.name=bigram"]),
    }
    for name, (source, assignments) in plans.items():
        recipe, _ = regard.api.plan([source], assignments=assignments)
        regard.api.train(recipe, folder / name)
    return folder


@pytest.fixture
def copy(trained, tmp_path):
    """Copies of the trained runs, to be spoilt."""

    def copied(name):
        return shutil.copytree(trained / name, tmp_path / name)

    return copied


# What is sound passes


@pytest.mark.parametrize("preset", sorted(Decoder.PRESETS))
def test_every_preset_of_the_transformer_passes(preset, tmp_path):
    torch.manual_seed(7)
    model = Decoder(11, Decoder.PRESETS[preset](2, 64))
    report = verify(save(tmp_path / "run", "transformer", model))
    assert not failed(report), report
    assert {check.name for check in report.checks} == ALONE


@pytest.mark.parametrize(
    "options",
    [
        {"window": 5, "positions": "t5"},
        {"positions": "alibi", "max_len": 3},
        {"positions": "learned", "max_len": 1},
        {"positions": "learned", "max_len": 2, "post_norm": True},
        {"positions": "binary", "max_len": 7},
    ],
    ids=str,
)
def test_windows_biases_and_the_shortest_contexts_pass(options, tmp_path):
    report = verify(decoder(tmp_path / "run", **options))
    assert not failed(report), report
    missing = {"causality by gradient"} if options.get("max_len") == 1 else set()
    assert {check.name for check in report.checks} == ALONE - missing


def test_a_score_without_a_fused_kernel_is_not_compared_with_one(tmp_path):
    report = verify(decoder(tmp_path / "run", score="additive"))
    assert not failed(report), report
    assert {check.name for check in report.checks} == RECURRENT


def test_an_lstm_passes(tmp_path):
    report = verify(lstm(tmp_path / "run"))
    assert not failed(report), report
    assert {check.name for check in report.checks} == RECURRENT


def test_a_translator_passes_what_only_translators_have_too(tmp_path):
    report = verify(translator(tmp_path / "run"))
    assert not failed(report), report
    assert {"sources together = alone", "translated together = alone"} <= {
        check.name for check in report.checks
    }
    assert "12 sources by greedy search and by beams" in detail(
        report, "translated together = alone"
    )


def test_a_bigram_that_has_counted_nothing_passes(tmp_path):
    report = verify(save(tmp_path / "run", "bigram", Bigram(11, CountConfig(max_len=13))))
    assert not failed(report), report
    assert "parted at a tie" in detail(report, "beam 1 = greedy")  # everything is equally probable


def test_a_model_with_more_tokens_than_its_tokenizer_passes(tmp_path):
    report = verify(decoder(tmp_path / "run", vocab_size=19))
    assert not failed(report), report


@pytest.mark.parametrize("kind", ["bytes", "words", "bpe"])
def test_texts_made_up_from_any_vocabulary_come_back(kind, tmp_path):
    tokenizer = KINDS[kind].train(["the cat sat on the mat the cat", "é ü 漢字 the"] * 3)
    model = Bigram(tokenizer.vocab_size, CountConfig(max_len=5))
    report = verify(save(tmp_path / "run", "bigram", model, tokenizer))
    assert not failed(report), report
    assert "20 texts made up" in detail(report, "tokenizer round trip")


def test_an_imported_folder_with_a_foreign_tokenizer_passes(tmp_path):
    vocab = {"[UNK]": 0, "<s>": 1, "</s>": 2, "▁": 3, "a": 4, "b": 5, "▁a": 6, "c": 7, "ba": 8}
    foreign = tokenizers.Tokenizer(models.BPE(vocab, [("▁", "a"), ("b", "a")], unk_token="[UNK]"))
    foreign.pre_tokenizer = pre_tokenizers.Metaspace()
    foreign.decoder = decoders.Metaspace()
    run = decoder(tmp_path / "run", vocab_size=11)
    export_hf(run, tmp_path / "hf")
    foreign.save(str(tmp_path / "hf" / "tokenizer.json"))
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "[UNK]"}
    (tmp_path / "hf" / "tokenizer_config.json").write_text(json.dumps(names))
    import_hf(tmp_path / "hf", tmp_path / "imported")
    report = verify(tmp_path / "imported")
    assert not failed(report), report
    assert {check.name for check in report.checks} == ALONE


def test_a_run_of_records_passes_every_check_on_its_own_files(trained):
    report = verify(trained / "records")
    expected = [name for name in CHECKS if "together = alone" not in name]
    assert [check.name for check in report.checks] == expected
    assert not failed(report), report
    assert "agree with the stored ids" in detail(report, "tokenizer round trip")
    assert "killed in step 3, resumed from step 2" in detail(report, "resume bit-equality")


def test_a_run_of_text_passes_on_its_own_files(trained):
    report = verify(trained / "text")
    assert {check.name for check in report.checks} == RECURRENT | {"resume bit-equality"}
    assert not failed(report), report
    assert "1 agree with the stored ids" in detail(report, "tokenizer round trip")


def test_a_counted_run_is_counted_again(trained):
    report = verify(trained / "counts")
    assert not failed(report), report
    assert "the run's own" in detail(report, "resume bit-equality")


def test_a_run_whose_files_or_data_are_gone_is_verified_with_what_is_left(copy):
    run = copy("counts")
    manifest = run / "data" / "manifest.json"
    moved = manifest.read_text().replace("names.txt", "moved.txt")
    manifest.write_text(moved)
    report = verify(run)
    assert not failed(report), report
    assert "of the run's own data" in detail(report, "tokenizer round trip")
    shutil.rmtree(run / "data")
    report = verify(run)
    assert not failed(report), report
    assert "resume bit-equality" not in {check.name for check in report.checks}


# The report


def test_verifying_changes_neither_the_folder_nor_the_random_state(trained):
    def contents():
        paths = sorted(p for p in (trained / "records").rglob("*") if p.is_file())
        return {p: p.read_bytes() for p in paths}

    before, state = contents(), torch.get_rng_state()
    verify(trained / "records")
    assert contents() == before
    assert torch.equal(torch.get_rng_state(), state)


def test_the_details_carry_figures_and_the_document_keeps_its_keys(tmp_path):
    report = verify(lstm(tmp_path / "run"))
    figure = r"max difference \d\.\de[+-]\d\d over \d+ positions.* \(allowed 1\.\de-05 .*\)"
    for name in ("cached = uncached", "batch = single", "padded = unpadded", "scores = logits"):
        assert re.fullmatch(figure, detail(report, name)), detail(report, name)
    document = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert document.keys() == {"checks", "ok"} and document["ok"] is True
    assert all(check.keys() == {"name", "ok", "detail"} for check in document["checks"])


def test_one_failed_check_fails_the_report():
    assert not Report((Check("a", True, ""), Check("b", False, ""))).ok


def test_a_folder_without_a_model_is_the_users_mistake(tmp_path):
    with pytest.raises(UserError, match="no run folder"):
        verify(tmp_path / "absent")
    with pytest.raises(UserError, match="not a run folder"):
        verify(tmp_path)


def test_a_check_that_raises_has_failed_with_one_line(tmp_path, monkeypatch):
    def score(self, *arguments, **options):
        raise RuntimeError("no\nscore")

    monkeypatch.setattr(Decoder, "score", score)
    report = verify(decoder(tmp_path / "run"))
    assert detail(report, "scores = logits") == "RuntimeError: no score"
    assert failed(report) == {"scores = logits", "beam = brute force", "probabilities sum to one"}


# What is broken fails


def wrap(monkeypatch, owner, name, change):
    """Replace a method by `change(its result, self, its arguments...)`."""
    plain = getattr(owner, name)

    def changed(self, *arguments, **options):
        return change(plain(self, *arguments, **options), self, *arguments)

    monkeypatch.setattr(owner, name, changed)


def test_a_leak_from_the_future_is_seen_by_gradient(tmp_path, monkeypatch):
    wrap(monkeypatch, Decoder, "hidden", lambda y, *_: y + 0.01 * y.roll(-1, dims=1))
    report = verify(decoder(tmp_path / "run"))
    assert "causality by gradient" in failed(report)
    assert not detail(report, "causality by gradient").startswith("gradient 0 ")
    untouched = {"fused = explicit", "save/load identity", "tokenizer round trip"}
    assert not failed(report) & untouched


def test_a_leak_that_no_gradient_shows_is_seen_when_the_future_changes(tmp_path, monkeypatch):
    def leak(y, self, ids, *_):
        return y + 0.01 * ids.roll(-1, dims=1)[..., None]

    wrap(monkeypatch, LSTMModel, "hidden", leak)
    report = verify(lstm(tmp_path / "run"))
    assert detail(report, "causality by gradient").startswith("gradient 0 ")
    assert "causality by gradient" in failed(report)


def test_a_cache_off_by_one_fails(tmp_path, monkeypatch):
    plain = Decoder.cached_place

    def cached_place(self, *arguments):
        place, where = plain(self, *arguments)
        if isinstance(where, range) and where.start:
            turned = self.positions.rotation(range(where.start + 1, where.stop + 1))
            place = dataclasses.replace(place, rotation=turned)
        return place, where

    monkeypatch.setattr(Decoder, "cached_place", cached_place)
    report = verify(decoder(tmp_path / "run"))
    assert failed(report) == {"cached = uncached", "beam = brute force"}


def test_explicit_weights_that_do_not_sum_to_one_fail(tmp_path, monkeypatch):
    plain = attention.softmax
    monkeypatch.setattr(attention, "softmax", lambda scores: plain(scores) * 1.001)
    assert failed(verify(decoder(tmp_path / "run"))) == {"fused = explicit"}


def test_rows_that_see_each_other_fail(tmp_path, monkeypatch):
    wrap(monkeypatch, Decoder, "hidden", lambda y, *_: y.lerp(y.mean(0, keepdim=True), 0.01))
    report = verify(decoder(tmp_path / "run"))
    assert "batch = single" in failed(report)
    assert not failed(report) & {"cached = uncached", "causality by gradient", "fused = explicit"}


def test_padding_that_is_read_fails(tmp_path, monkeypatch):
    plain = LSTMModel.extend
    monkeypatch.setattr(
        LSTMModel, "extend", lambda self, ids, _, state: plain(self, ids, None, state)
    )
    assert failed(verify(lstm(tmp_path / "run"))) == {"padded = unpadded"}


def test_packed_records_that_see_each_other_fail(tmp_path, monkeypatch):
    monkeypatch.setattr(Documents, "rule", lambda self, b, h, q, k: (b == b) & (q == q) & (k == k))
    assert failed(verify(decoder(tmp_path / "run"))) == {"padded = unpadded"}


def test_scores_that_are_not_normalised_fail(tmp_path, monkeypatch):
    wrap(
        monkeypatch,
        Decoder,
        "score",
        lambda y, self, ids, targets, *_: y + 0.01 * (targets != IGNORE),
    )
    report = verify(decoder(tmp_path / "run"))
    expected = {"scores = logits", "beam = brute force", "probabilities sum to one"}
    assert failed(report) == expected
    assert "max difference 1.0e-02" in detail(report, "scores = logits")


def test_beams_that_are_not_reordered_fail(tmp_path, monkeypatch):
    monkeypatch.setattr(DecodeState, "select", lambda self, parents: None)
    assert failed(verify(decoder(tmp_path / "run"))) == {"beam = brute force"}


def test_translations_that_are_not_reordered_with_their_beams_fail(tmp_path, monkeypatch):
    monkeypatch.setattr(DecodeState, "select", lambda self, parents: None)
    assert "translated together = alone" in failed(verify(translator(tmp_path / "run")))


def test_a_greedy_path_that_is_not_greedy_fails(tmp_path, monkeypatch):
    def second_best(scores, step):
        chosen, ids = scores.topk(2)
        return ids[:, 1], chosen[:, 1]

    monkeypatch.setattr(sampling, "_most_probable", second_best)
    assert failed(verify(decoder(tmp_path / "run"))) == {"beam 1 = greedy"}


def test_weights_that_come_back_changed_fail_and_are_named(tmp_path, monkeypatch):
    def load(folder):
        model = load_model(folder)
        model.head.weight.data[3, 2] = torch.nextafter(
            model.head.weight.data[3, 2], torch.tensor(9.0)
        )
        return model

    monkeypatch.setattr(files, "load_model", load)
    report = verify(lstm(tmp_path / "run"))
    assert failed(report) == {"save/load identity"}
    assert "head.weight" in detail(report, "save/load identity")


def test_a_tokenizer_with_two_letters_exchanged_fails(copy):
    run = copy("counts")
    path = run / "tokenizer.json"
    document = json.loads(path.read_text())
    vocab = document["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    path.write_text(json.dumps(document))
    report = verify(run)
    assert failed(report) == {"tokenizer round trip"}
    assert "the data holds other ids" in detail(report, "tokenizer round trip")


def test_a_damaged_tokenizer_fails_and_the_model_is_still_checked(copy):
    run = copy("counts")
    (run / "tokenizer.json").write_text("{")
    report = verify(run)
    assert failed(report) == {"tokenizer round trip", "resume bit-equality"}
    assert "not a JSON file" in detail(report, "tokenizer round trip")


def test_a_tokenizer_too_large_for_the_model_fails(tmp_path):
    report = verify(decoder(tmp_path / "run", vocab_size=10))
    assert failed(report) == {"tokenizer round trip"}
    told = "tokenizer.json has 11 tokens, config.json says 10"
    assert detail(report, "tokenizer round trip") == told


def test_texts_that_do_not_come_back_fail(tmp_path, monkeypatch):
    wrap(monkeypatch, Characters, "decode", lambda text, *_: text.replace("c", "C"))
    report = verify(lstm(tmp_path / "run"))
    assert failed(report) == {"tokenizer round trip"}


def test_ids_that_the_library_does_not_give_fail(tmp_path, monkeypatch):
    wrap(monkeypatch, Characters, "encode_batch", lambda found, *_: (found[0][::-1], found[1]))
    report = verify(lstm(tmp_path / "run"))
    assert failed(report) == {"tokenizer round trip"}
    assert "the tokenizers library gives other ids" in detail(report, "tokenizer round trip")


def test_an_optimizer_that_forgets_its_state_fails(trained, monkeypatch):
    monkeypatch.setattr(Optimizer, "load", lambda self, tensors: None)
    report = verify(trained / "records")
    assert failed(report) == {"resume bit-equality"}


def test_a_count_that_was_changed_fails(copy):
    run = copy("counts")
    tensors = read_tensors(run / "model.safetensors")
    tensors["counts"][0] += 1
    write_tensors(run / "model.safetensors", tensors)
    report = verify(run)
    assert failed(report) == {"resume bit-equality"}
    assert detail(report, "resume bit-equality").startswith("counts differs")
