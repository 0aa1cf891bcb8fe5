"""GPT-2, Llama and Qwen3 folders: which class is chosen, and which configurations are refused."""

import json
import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from spoiling import GPT2_PARTS, SIZES, edit, exported, make_run, refused, retensor

from regard.errors import UserError
from regard.interop.hf_decoder import FORMATS, choose_format
from regard.interop.hugging_face import export_hf, import_hf
from regard.models.decoder import DecoderConfig, gpt2, llama, modern, vaswani
from regard.run import Run, weights
from regard.storage import read_tensors


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
        ({"bias": True}, ["bias = True", "Qwen3ForCausalLM needs bias = False", "qk_norm = False"]),
        (
            {"feedforward": "gelu"},
            ["feedforward = 'gelu'", "Qwen3ForCausalLM needs feedforward = 'swiglu'"],
        ),
        ({**GPT2_PARTS, "bias": False}, ["bias = False", "GPT2LMHeadModel needs bias = True"]),
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


def test_versions_four_and_five_find_the_rotary_base_and_the_type(tmp_path):
    stored = json.loads((exported(tmp_path, rope_theta=77.0) / "config.json").read_text())
    assert stored["rope_theta"] == stored["rope_parameters"]["rope_theta"] == 77.0
    assert stored["rope_parameters"]["rope_type"] == "default"
    assert stored["dtype"] == stored["torch_dtype"] == "float32"
    ids = ("pad_token_id", "bos_token_id", "eos_token_id")
    assert [stored[key] for key in ids] == [0, 1, 2]


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
    assert refused(hf, *fragments)


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
    assert refused(hf, *fragments)


def test_biases_in_llama_are_everywhere_or_nowhere(tmp_path):
    hf = exported(tmp_path, qk_norm=False, bias=True)
    edit(hf / "config.json", {"mlp_bias": False})
    assert refused(hf, "mlp_bias = False", "attention_bias = True")


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
    assert refused(hf, "unknown model.layers.0.attn.bias")


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
@settings(max_examples=25, deadline=None)
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
    out = sound / f"out{len(list(sound.iterdir()))}"
    try:
        import_hf(spoilt, out)
    except UserError as error:
        assert "\n" not in str(error)
    else:
        before, after = Run(sound / f"{form.name}.run").model(), Run(out).model()
        assert weights(before).keys() == weights(after).keys()
