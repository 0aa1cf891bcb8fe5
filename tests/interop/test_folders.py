"""Hugging Face folders as files: what is written, what is refused, and that nothing hostile gets in."""

import json
import os
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from regard.errors import UserError
from regard.interop import export_hf, import_hf
from regard.interop.configuration import FORMATS, choose_format
from regard.models.decoder import Decoder, DecoderConfig, gpt2, llama, modern, vaswani
from regard.models.recurrent import LSTMModel
from regard.run import load_model, read_tensors, weights, write_config, write_tensors
from regard.tokens import Characters

SIZES = {"n_layers": 2, "d_model": 24, "n_heads": 6, "n_kv_heads": 2, "d_head": 10, "d_ff": 36}
GPT2_PARTS = {
    "norm": "layer",
    "positions": "learned",
    "feedforward": "gelu",
    "bias": True,
    "qk_norm": False,
    "n_kv_heads": 6,
    "d_head": 4,
}


def make_run(folder, name="transformer", model=None, **options):
    """A run folder with random weights over the characters a to e."""
    tokenizer = Characters.train(["abcde"])
    if model is None:
        torch.manual_seed(1)
        config = DecoderConfig(**{**SIZES, "max_len": 30, **options})
        model = Decoder(tokenizer.vocab_size, config)
    folder.mkdir()
    write_config(folder, name, model)
    write_tensors(folder / "model.safetensors", weights(model))
    tokenizer.save(folder / "tokenizer.json")
    return folder


def exported(tmp_path, **options):
    """A Hugging Face folder to spoil."""
    export_hf(make_run(tmp_path / "run", **options), tmp_path / "hf")
    return tmp_path / "hf"


def edit(path, change):
    """Rewrite a JSON file with some of its keys changed; None removes a key."""
    stored = json.loads(path.read_text()) | change
    path.write_text(json.dumps({key: value for key, value in stored.items() if value is not None}))


def retensor(hf, change):
    """Rewrite model.safetensors through `change`, which alters the tensors in place."""
    tensors = load_file(hf / "model.safetensors")
    change(tensors)
    save_file(tensors, hf / "model.safetensors", {"format": "pt"})


def refused(hf, *fragments):
    """Importing raises one line that holds all fragments and leaves nothing behind."""
    with pytest.raises(UserError) as caught:
        import_hf(hf, hf.parent / "back")
    message = str(caught.value)
    assert "\n" not in message
    for fragment in fragments:
        assert fragment in message
    assert not (hf.parent / "back").exists()
    assert not list(hf.parent.glob(".*.tmp"))


# Choosing the class


@pytest.mark.parametrize(
    ("preset", "name"),
    [(gpt2, "GPT2LMHeadModel"), (llama, "LlamaForCausalLM"), (modern, "Qwen3ForCausalLM")],
)
def test_every_preset_that_maps_has_its_class(preset, name):
    assert choose_format(preset(2, 64)).name == name


@pytest.mark.parametrize(
    ("options", "fragments"),
    [
        ({"post_norm": True}, ["post_norm = True", "False"]),
        ({"positions": "sinusoidal"}, ["positions = 'sinusoidal'", "'learned' or 'rotary'"]),
        ({"positions": "binary"}, ["positions = 'binary'"]),
        ({"positions": "alibi"}, ["positions = 'alibi'"]),
        ({"positions": "t5"}, ["positions = 't5'"]),
        ({"positions": "none"}, ["positions = 'none'"]),
        ({"feedforward": "relu"}, ["feedforward = 'relu'", "'gelu' or 'swiglu'"]),
        ({"feedforward": "relu2"}, ["feedforward = 'relu2'"]),
        ({"score": "dot"}, ["score = 'dot'", "scaled_dot"]),
        ({"projections": "identity"}, ["projections = 'identity'", "learned"]),
        ({"scale_embedding": True}, ["scale_embedding = True"]),
        ({"window": 7}, ["window = 7", "allowed: 0"]),
        ({"bias": True}, ["Qwen3ForCausalLM", "bias = True"]),
        ({"feedforward": "gelu"}, ["Qwen3ForCausalLM", "feedforward = 'gelu'", "'swiglu'"]),
        ({**GPT2_PARTS, "bias": False}, ["GPT2LMHeadModel", "bias = False"]),
        ({**GPT2_PARTS, "n_kv_heads": 2}, ["n_kv_heads = 2", "n_heads = 6"]),
        ({**GPT2_PARTS, "d_head": 8}, ["d_head = 8", "d_model", "24"]),
        ({"qk_norm": False, "d_model": 32}, ["n_heads = 6", "divide d_model", "32"]),
    ],
)
def test_what_no_class_computes_is_refused_by_name(options, fragments):
    config = DecoderConfig(**{**SIZES, **options})
    with pytest.raises(UserError) as caught:
        choose_format(config)
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_the_decoder_of_2017_is_refused():
    with pytest.raises(UserError, match="cannot export"):
        choose_format(vaswani(2, 64))


def test_other_families_are_refused(tmp_path):
    model = LSTMModel(9, LSTMModel.PRESETS[next(iter(LSTMModel.PRESETS))](1, 8))
    make_run(tmp_path / "run", "lstm", model)
    with pytest.raises(UserError, match="'lstm' has no Hugging Face class; only 'transformer'"):
        export_hf(tmp_path / "run", tmp_path / "hf")


# What is written


def test_the_report_says_what_is_in_the_folder(tmp_path):
    run = make_run(tmp_path / "run", dropout=0.1)
    report = export_hf(run, tmp_path / "hf")
    assert report["class"] == "Qwen3ForCausalLM"
    assert report["files"] == sorted(path.name for path in (tmp_path / "hf").iterdir())
    assert set(report["files"]) >= {"config.json", "generation_config.json", "model.safetensors"}
    assert set(report["files"]) >= {"tokenizer.json", "tokenizer_config.json", "README.md"}
    assert report["parameters"] == sum(p.numel() for p in load_model(run).parameters())
    assert report["left_out"] == {"dropout": 0.1}


def test_versions_four_and_five_find_the_rotary_base_and_the_type(tmp_path):
    stored = json.loads((exported(tmp_path, theta=77.0) / "config.json").read_text())
    assert stored["rope_theta"] == stored["rope_parameters"]["rope_theta"] == 77.0
    assert stored["rope_parameters"]["rope_type"] == "default"
    assert stored["dtype"] == stored["torch_dtype"] == "float32"
    ids = ("pad_token_id", "bos_token_id", "eos_token_id")
    assert [stored[key] for key in ids] == [0, 1, 2]


def test_a_tied_matrix_is_stored_once(tmp_path):
    hf = exported(tmp_path, tied=True)
    with safe_open(hf / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
        assert "lm_head.weight" not in list(file.keys())
    assert json.loads((hf / "config.json").read_text())["tie_word_embeddings"] is True


def test_an_imported_run_says_where_it_came_from(tmp_path):
    report = import_hf(exported(tmp_path), tmp_path / "back")
    facts = json.loads((tmp_path / "back" / "regard.json").read_text())
    assert facts["imported_from"] == report["class"] == "Qwen3ForCausalLM"
    assert facts["folder"] == "hf"
    assert report["files"] == sorted(path.name for path in (tmp_path / "back").iterdir())
    assert "recipe.toml" not in report["files"]


@pytest.mark.parametrize("convert", [export_hf, import_hf])
def test_a_folder_in_use_is_never_written_to(convert, tmp_path):
    source = make_run(tmp_path / "run") if convert is export_hf else exported(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("precious")
    (tmp_path / "file").write_text("precious")
    with pytest.raises(UserError, match="not empty"):
        convert(source, tmp_path / "full")
    with pytest.raises(UserError, match="is a file"):
        convert(source, tmp_path / "file")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine"]
    (tmp_path / "empty").mkdir()
    convert(source, tmp_path / "empty")
    convert(source, tmp_path / "new" / "deep")
    assert (tmp_path / "empty" / "config.json").exists()
    assert (tmp_path / "new" / "deep" / "config.json").exists()


# Configurations that cannot be read


@pytest.mark.parametrize(
    ("change", "fragments"),
    [
        ({"architectures": ["MambaForCausalLM"]}, ["MambaForCausalLM", "Qwen3ForCausalLM"]),
        ({"architectures": None}, ["architectures = None"]),
        ({"model_type": "mistral"}, ["model_type = 'mistral'", "qwen3"]),
        ({"hidden_act": "gelu"}, ["hidden_act = 'gelu'", "'silu'"]),
        ({"attention_bias": True}, ["attention_bias = True"]),
        ({"use_sliding_window": True}, ["use_sliding_window = True"]),
        ({"layer_types": ["full_attention", "sliding_attention"]}, ["layer_types"]),
        ({"quantization_config": {"bits": 4}}, ["quantization_config", "full-precision"]),
        ({"auto_map": {"AutoModel": "evil.Model"}}, ["auto_map", "never run"]),
        ({"partial_rotary_factor": 0.5}, ["partial_rotary_factor = 0.5"]),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, ["rope_scaling", "unscaled"]),
        ({"rope_parameters": {"rope_type": "llama3"}}, ["rope_parameters", "unscaled"]),
        ({"rope_parameters": {"full_attention": {}}}, ["rope_parameters"]),
        ({"rope_parameters": []}, ["rope_parameters", "table"]),
        ({"rope_theta": 3.0}, ["rope_theta", "3.0"]),
        ({"rope_theta": 0, "rope_parameters": None}, ["rope_theta", "positive"]),
        ({"hidden_size": None}, ["lacks hidden_size"]),
        ({"hidden_size": "24"}, ["hidden_size = '24'", "whole number"]),
        ({"hidden_size": True}, ["hidden_size = True", "whole number"]),
        ({"num_hidden_layers": 10**9}, ["n_layers", "1000"]),
        ({"num_attention_heads": 0}, ["n_heads"]),
        ({"num_key_value_heads": 4}, ["n_kv_heads=4"]),
        ({"head_dim": 7}, ["even d_head"]),
        ({"vocab_size": 1 << 40}, ["vocab_size"]),
        ({"max_position_embeddings": 1 << 22, "head_dim": 4096}, ["max_position_embeddings"]),
        ({"rms_norm_eps": 0}, ["rms_norm_eps", "positive"]),
        ({"rms_norm_eps": float("nan")}, ["rms_norm_eps", "finite"]),
        ({"tie_word_embeddings": "yes"}, ["tie_word_embeddings = 'yes'"]),
        ({"hidden_size": 1 << 16}, ["has shape (9, 24), expected (9, 65536)"]),
        ({"num_hidden_layers": 3}, ["lacks model.layers.2."]),
        ({"num_hidden_layers": 1}, ["unknown model.layers.1."]),
        ({"tie_word_embeddings": True}, ["lm_head.weight", "differ"]),
        ({"vocab_size": 8}, ["ids up to 8", "up to 7"]),
    ],
)
def test_configurations_that_compute_something_else_are_refused(change, fragments, tmp_path):
    hf = exported(tmp_path)
    if change.get("vocab_size") == 8:
        retensor(hf, lambda t: t.update({k: v[:8].clone() for k, v in t.items() if len(v) == 9}))
    edit(hf / "config.json", change)
    refused(hf, *fragments)


@pytest.mark.parametrize(
    ("change", "fragments"),
    [
        ({"activation_function": "relu"}, ["activation_function = 'relu'", "gelu_new"]),
        ({"scale_attn_weights": False}, ["scale_attn_weights = False"]),
        ({"scale_attn_by_inverse_layer_idx": True}, ["scale_attn_by_inverse_layer_idx = True"]),
        ({"add_cross_attention": True}, ["add_cross_attention = True"]),
        ({"pruned_heads": {"0": [1]}}, ["pruned_heads"]),
        ({"n_head": 5}, ["n_head = 5", "divide n_embd = 24"]),
        ({"n_inner": None}, ["expected (24, 96)"]),  # left out, it is four times the width
        ({"resid_pdrop": 1.5}, ["dropout", "1.5"]),
    ],
)
def test_other_kinds_of_gpt2_are_refused(change, fragments, tmp_path):
    hf = exported(tmp_path, **GPT2_PARTS)
    edit(hf / "config.json", change)
    refused(hf, *fragments)


def test_biases_in_llama_are_everywhere_or_nowhere(tmp_path):
    hf = exported(tmp_path, qk_norm=False, bias=True)
    edit(hf / "config.json", {"mlp_bias": False})
    refused(hf, "mlp_bias = False", "attention_bias = True")


def test_a_run_folder_is_no_hugging_face_folder(tmp_path):
    run = make_run(tmp_path / "run")
    refused(run, "run folder of regard")
    refused(tmp_path / "nowhere", "no such folder")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """One sound folder per class."""
    root = tmp_path_factory.mktemp("sound")
    kinds = {"GPT2LMHeadModel": GPT2_PARTS, "LlamaForCausalLM": {"qk_norm": False}}
    kinds["Qwen3ForCausalLM"] = {}
    for name, options in kinds.items():
        export_hf(make_run(root / f"{name}.run", **options), root / name)
    return root


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_damage_to_a_configuration_is_a_user_error_or_changes_nothing(form, data, sound):
    source = json.loads((sound / form.name / "config.json").read_text())
    key = data.draw(st.sampled_from([*source, "rope_scaling", "layer_types", "auto_map"]))
    spoilt = sound / "spoilt"
    spoilt.mkdir(exist_ok=True)
    for path in (sound / form.name).iterdir():
        (spoilt / path.name).unlink(missing_ok=True)
        os.link(path, spoilt / path.name)
    (spoilt / "config.json").unlink()
    (spoilt / "config.json").write_text(json.dumps(source | {key: data.draw(JSON)}))
    out = Path(sound / f"out{len(list(sound.iterdir()))}")
    try:
        import_hf(spoilt, out)
    except UserError as error:
        assert "\n" not in str(error)
    else:
        before, after = load_model(sound / f"{form.name}.run"), load_model(out)
        assert weights(before).keys() == weights(after).keys()


# Files that cannot be read, and some that can


@pytest.mark.parametrize(
    ("change", "fragments"),
    [
        (lambda t: t.pop("model.norm.weight"), ["lacks model.norm.weight"]),
        (lambda t: t.update(extra=torch.ones(2)), ["unknown extra"]),
        (lambda t: t.update({"model.norm.weight": torch.ones(25)}), ["(25,), expected (24,)"]),
        (lambda t: t.update({"model.norm.weight": torch.ones(24).long()}), ["I64", "BF16"]),
        (lambda t: t["model.norm.weight"].fill_(torch.nan), ["model.norm.weight holds NaN"]),
    ],
)
def test_tensors_that_do_not_fit_are_named(change, fragments, tmp_path):
    hf = exported(tmp_path)
    retensor(hf, change)
    refused(hf, *fragments)


def test_buffers_and_a_missing_prefix_of_old_uploads_are_accepted(tmp_path):
    hf = exported(tmp_path, **GPT2_PARTS, tied=True)

    def as_in_2019(tensors):
        bare = {name.removeprefix("transformer."): tensors.pop(name) for name in list(tensors)}
        tensors |= bare
        for i in range(2):
            tensors[f"h.{i}.attn.bias"] = torch.ones(1, 1, 30, 30).tril()
            tensors[f"h.{i}.attn.masked_bias"] = torch.tensor(-1e4)

    retensor(hf, as_in_2019)
    edit(hf / "config.json", {"tie_word_embeddings": None})  # left out, as it was then
    import_hf(hf, tmp_path / "back")
    before = read_tensors(tmp_path / "run" / "model.safetensors")
    after = read_tensors(tmp_path / "back" / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)


def test_rotary_buffers_are_accepted_and_other_buffers_are_not(tmp_path):
    hf = exported(tmp_path, qk_norm=False)
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    retensor(hf, lambda t: t.update({name: torch.ones(5)}))
    import_hf(hf, tmp_path / "good")
    retensor(hf, lambda t: t.update({"model.layers.0.attn.bias": torch.ones(5)}))
    refused(hf, "unknown model.layers.0.attn.bias")


def test_a_second_copy_of_a_tied_matrix_is_accepted_when_it_is_equal(tmp_path):
    hf = exported(tmp_path, tied=True)
    retensor(hf, lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"].clone()}))
    import_hf(hf, tmp_path / "good")
    assert "head.weight" not in read_tensors(tmp_path / "good" / "model.safetensors")
    retensor(hf, lambda t: t["lm_head.weight"].add_(1))
    refused(hf, "tie_word_embeddings", "differ")


def test_pickles_are_refused_with_the_way_out(tmp_path):
    hf = exported(tmp_path)
    (hf / "model.safetensors").rename(hf / "pytorch_model.bin")
    refused(hf, "pytorch_model.bin", "unsafe pickle", "safetensors")
    (hf / "pytorch_model.bin").unlink()
    refused(hf, "no weights")


def shard(hf, places=None, **files):
    """Cut model.safetensors in two; `places` overrides where the index says a tensor is."""
    tensors = load_file(hf / "model.safetensors")
    (hf / "model.safetensors").unlink()
    names = sorted(tensors)
    halves = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, held in halves.items():
        save_file({name: tensors[name] for name in held}, hf / file)
    index = {name: file for file, held in halves.items() for name in held} | (places or {})
    (hf / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))


def test_shards_are_put_together(tmp_path):
    hf = exported(tmp_path)
    shard(hf)
    import_hf(hf, tmp_path / "back")
    before = read_tensors(tmp_path / "run" / "model.safetensors")
    after = read_tensors(tmp_path / "back" / "model.safetensors")
    assert all(torch.equal(before[key], after[key]) for key in before)


@pytest.mark.parametrize(
    ("places", "fragments"),
    [
        ({"model.norm.weight": "../run/model.safetensors"}, ["../run/model.safetensors"]),
        ({"model.norm.weight": "/etc/passwd"}, ["/etc/passwd"]),
        ({"model.norm.weight": "c.safetensors"}, ["no c.safetensors"]),
        ({"model.norm.weight": "a.bin"}, ["a.bin"]),
        ({"model.norm.weight": 3}, ["weight_map"]),
        ({"other": "a.safetensors"}, ["a.safetensors", "lacks other"]),
    ],
)
def test_an_index_names_only_files_of_the_folder_and_what_they_hold(places, fragments, tmp_path):
    hf = exported(tmp_path)
    shard(hf, places)
    refused(hf, *fragments)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_links_out_of_the_folder_are_not_followed(name, tmp_path):
    hf = exported(tmp_path)
    (hf / name).rename(tmp_path / name)
    refused(hf, f"has no {name}")
    (hf / name).symlink_to(tmp_path / name)
    refused(hf, name, "outside the folder")
    (tmp_path / name).unlink()
    refused(hf, name, "cannot be read")
    (hf / name).unlink()
    (hf / name).mkdir()
    refused(hf, name, "not a file")


def test_the_links_of_the_hub_cache_are_followed(tmp_path):
    hf = exported(tmp_path)
    snapshot = tmp_path / "models--x" / "snapshots" / "abc"
    (tmp_path / "models--x" / "blobs").mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for number, path in enumerate(sorted(hf.iterdir())):
        path.rename(tmp_path / "models--x" / "blobs" / str(number))
        (snapshot / path.name).symlink_to(f"../../blobs/{number}")
    assert import_hf(snapshot, tmp_path / "back")["class"] == "Qwen3ForCausalLM"


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize(
    "contents", [b"", b"\xff" * 40, b"[" * 200_000, b"[1]", b'{"a": ' + b"9" * 9999]
)
def test_damaged_files_are_user_errors(name, contents, tmp_path):
    hf = exported(tmp_path)
    (hf / name).write_bytes(contents)
    refused(hf, name)


def test_a_truncated_weight_file_is_refused(tmp_path):
    hf = exported(tmp_path)
    whole = (hf / "model.safetensors").read_bytes()
    (hf / "model.safetensors").write_bytes(whole[:-100])
    refused(hf, "model.safetensors is damaged")
