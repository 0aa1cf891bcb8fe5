"""Marian and Pegasus folders: which class is chosen, and what is refused both ways."""

import dataclasses
import json

import pytest
import torch
from spoiling import edit, make_run, refused, retensor

from regard.errors import UserError
from regard.interop.hf_seq2seq import choose_format
from regard.interop.hugging_face import export_hf, import_hf
from regard.layers.positions import sinusoids
from regard.models.encoder_decoder import EncoderDecoder, modern, vaswani
from regard.storage import read_tensors


def config(preset=modern, **options):
    sizes = {"n_heads": 4, "n_kv_heads": 4, "d_head": 6, "d_ff": 36, "max_len": 30}
    return dataclasses.replace(preset(2, 24), **{**sizes, **options})


def exported(tmp_path, preset=modern, **options):
    """A Hugging Face folder to spoil."""
    torch.manual_seed(1)
    model = EncoderDecoder(9, config(preset, **options))
    export_hf(make_run(tmp_path / "run", "transformer", model), tmp_path / "hf")
    return tmp_path / "hf"


def test_their_positions_are_ours_in_their_order(tmp_path):
    hf = exported(tmp_path)
    table = read_tensors(hf / "model.safetensors")["model.decoder.embed_positions.weight"]
    ours = sinusoids(torch.arange(30), 24)
    assert torch.equal(table[:, :12], ours[:, ::2]) and torch.equal(table[:, 12:], ours[:, 1::2])


@pytest.mark.parametrize(
    ("preset", "name"),
    [(vaswani, "MarianMTModel"), (modern, "PegasusForConditionalGeneration")],
)
def test_every_preset_has_its_class(preset, name):
    assert choose_format(preset(2, 64)).name == name


@pytest.mark.parametrize(
    ("options", "fragments"),
    [
        ({"source_vocab": 50}, ["source_vocab = 50", "one joint vocabulary is needed"]),
        ({"norm": "rms"}, ["norm = 'rms'", "norm = 'layer'"]),
        ({"norm_eps": 1e-6}, ["norm_eps = 1e-06", "1e-05"]),
        ({"positions": "rotary"}, ["positions = 'rotary'", "sinusoidal"]),
        ({"feedforward": "gelu"}, ["feedforward = 'gelu'", "relu"]),
        ({"bias": False}, ["bias = False"]),
        ({"qk_norm": True}, ["qk_norm = True"]),
        ({"tied": False}, ["tied = False"]),
        ({"window": 3}, ["window = 3"]),
        ({"n_kv_heads": 2}, ["n_kv_heads = 2", "n_heads = 4"]),
        ({"d_head": 8}, ["d_head = 8", "d_model", "24"]),
    ],
)
def test_what_no_class_computes_is_refused_by_name(options, fragments):
    with pytest.raises(UserError) as caught:
        choose_format(config(**options))
    for fragment in fragments:
        assert fragment in str(caught.value)


@pytest.mark.parametrize(
    ("change", "fragments"),
    [
        ({"activation_function": "swish"}, ["activation_function = 'swish'", "'relu'"]),
        ({"activation_function": None}, ["activation_function = 'gelu'"]),  # their default
        ({"normalize_before": False}, ["normalize_before = False", "True"]),
        ({"normalize_embedding": True}, ["normalize_embedding = True"]),
        ({"layernorm_embedding": True}, ["layernorm_embedding = True"]),
        ({"add_final_layer_norm": False}, ["add_final_layer_norm = False"]),
        ({"static_position_embeddings": False}, ["static_position_embeddings = False"]),
        ({"share_encoder_decoder_embeddings": False}, ["share_encoder_decoder_embeddings"]),
        ({"tie_word_embeddings": False}, ["tie_word_embeddings = False"]),
        ({"is_encoder_decoder": False}, ["is_encoder_decoder = False"]),
        ({"decoder_vocab_size": 8}, ["decoder_vocab_size = 8", "one joint vocabulary"]),
        ({"encoder_ffn_dim": 40}, ["encoder_ffn_dim = 40", "decoder_ffn_dim = 36"]),
        ({"encoder_attention_heads": 2}, ["encoder_attention_heads = 2", "= 4"]),
        (
            {"encoder_attention_heads": 5, "decoder_attention_heads": 5},
            ["decoder_attention_heads = 5", "divide d_model = 24"],
        ),
        ({"d_model": None}, ["lacks d_model"]),
        ({"encoder_layers": 0}, ["n_encoder_layers must be from 1"]),
        ({"encoder_layers": 3}, ["lacks model.encoder.layers.2."]),
        ({"decoder_layers": 1}, ["unknown model.decoder.layers.1."]),
        ({"max_position_embeddings": 1 << 22}, ["embed_positions.weight has shape (30, 24)"]),
        ({"scale_embedding": "yes"}, ["scale_embedding = 'yes'"]),
        ({"decoder_start_token_id": 3}, ["decoder_start_token_id = 3"]),
        ({"decoder_start_token_id": None}, ["lacks decoder_start_token_id"]),
        ({"eos_token_id": 0}, ["eos_token_id = 0"]),
        ({"auto_map": {"AutoModel": "evil.Model"}}, ["auto_map", "never run"]),
        ({"model_type": "marian"}, ["model_type = 'marian'", "pegasus"]),
        (
            {"architectures": ["BartForConditionalGeneration"]},
            ["BartForConditionalGeneration", "MarianMTModel", "Qwen3ForCausalLM"],
        ),
    ],
)
def test_configurations_that_compute_something_else_are_refused(change, fragments, tmp_path):
    hf = exported(tmp_path)
    edit(hf / "config.json", change)
    assert refused(hf, *fragments)


@pytest.mark.parametrize(
    ("change", "fragments"),
    [
        (lambda t: t["final_logits_bias"].add_(0.1), ["final_logits_bias must be zeros"]),
        (
            lambda t: t["model.encoder.embed_positions.weight"].mul_(1.1),
            ["model.encoder.embed_positions.weight must be the sinusoids"],
        ),
        (
            lambda t: t.update({"lm_head.weight": t["model.shared.weight"] + 1}),
            ["lm_head.weight and model.shared.weight differ"],
        ),
        (
            lambda t: t.update({"model.encoder.layernorm_embedding.weight": torch.ones(24)}),
            ["unknown model.encoder.layernorm_embedding.weight"],
        ),
        (lambda t: t.pop("model.decoder.layer_norm.bias"), ["lacks model.decoder.layer_norm.bias"]),
    ],
)
def test_tensors_that_compute_something_else_are_refused(change, fragments, tmp_path):
    hf = exported(tmp_path)
    retensor(hf, change)
    assert refused(hf, *fragments)


@pytest.mark.parametrize("preset", [vaswani, modern])
def test_files_with_copies_or_without_constants_are_read(preset, tmp_path):
    hf = exported(tmp_path, preset)

    def rewrite(tensors):
        for name in [name for name in tensors if "embed_positions" in name or "bias" in name[:18]]:
            del tensors[name]
        for name in ("lm_head", "model.encoder.embed_tokens", "model.decoder.embed_tokens"):
            tensors[f"{name}.weight"] = tensors["model.shared.weight"].clone()

    retensor(hf, rewrite)
    import_hf(hf, tmp_path / "back")
    before, after = (read_tensors(tmp_path / f / "model.safetensors") for f in ("run", "back"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)


def test_the_files_of_sentencepiece_are_refused(tmp_path):
    hf = exported(tmp_path)
    (hf / "tokenizer.json").rename(hf / "source.spm")
    assert refused(hf, "sentencepiece", "source.spm", "tokenizer.json")


def test_the_report_and_the_run_say_what_it_is(tmp_path):
    hf = exported(tmp_path, dropout=0.3)
    report = import_hf(hf, tmp_path / "back")
    stored = json.loads((tmp_path / "back" / "config.json").read_text())
    assert stored["task"] == "target" and stored["config"]["dropout"] == 0.3
    facts = json.loads((tmp_path / "back" / "regard.json").read_text())
    assert facts["imported_from"] == report["class"] == "PegasusForConditionalGeneration"
    generation = json.loads((hf / "generation_config.json").read_text())
    assert generation["num_beams"] > 1 and generation["suppress_tokens"] == [0, 1, 3]
