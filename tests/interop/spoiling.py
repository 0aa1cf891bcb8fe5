"""Small run and Hugging Face folders for tests, and ways to spoil them."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.errors import UserError
from regard.interop.hugging_face import export_hf, import_hf
from regard.models.decoder import Decoder, DecoderConfig
from regard.run import weights, write_config
from regard.storage import write_tensors
from regard.tokenizers import Characters

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
    """True once importing raised one line that holds all fragments and left nothing behind."""
    with pytest.raises(UserError) as caught:
        import_hf(hf, hf.parent / "back")
    message = str(caught.value)
    assert "\n" not in message
    for fragment in fragments:
        assert fragment in message
    assert not (hf.parent / "back").exists()
    assert not list(hf.parent.glob(".*.tmp"))
    return True
