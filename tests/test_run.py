"""The run folder: reading what others may have made, and metrics that are cut back."""

import json
import shlex
import struct
import time

import pytest
import torch
from safetensors.torch import save_file

from regard import run
from regard.errors import UserError
from regard.models.decoder import Decoder, DecoderConfig
from regard.models.ngrams import Bigram, CountConfig
from regard.run import Run
from regard.storage import read_tensors, write_tensors

CONFIG = DecoderConfig(
    n_layers=1, d_model=8, n_heads=2, n_kv_heads=1, d_head=4, d_ff=12, max_len=10
)


@pytest.fixture
def folder(tmp_path):
    """A run folder with a small decoder."""
    torch.manual_seed(0)
    model = Decoder(11, CONFIG)
    run.write_config(tmp_path, "transformer", model)
    write_tensors(tmp_path / run.WEIGHTS, run.weights(model))
    return tmp_path


def change(folder, **values):
    path = folder / run.CONFIG
    stored = json.loads(path.read_text())
    for key, value in values.items():
        table = stored if key in stored else stored["config"]
        table[key] = value
    path.write_text(json.dumps(stored))


def test_a_model_comes_back_as_it_was(folder):
    torch.manual_seed(0)
    model, ids = Decoder(11, CONFIG), torch.arange(7)[None]
    assert torch.equal(Run(folder).model().logits(ids), model.logits(ids))


def test_a_flipped_bit_in_the_weights_is_found(folder):
    path = folder / run.WEIGHTS
    whole = path.read_bytes()
    header = 8 + struct.unpack("<Q", whole[:8])[0]
    for place in range(header, len(whole), 97):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(UserError, match=r"checksum differs|NaN"):
            Run(folder).model()


def hostile(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


HOSTILE = {
    "huge header": struct.pack("<Q", 1 << 62) + b"{}",
    "huge tensor": hostile(
        {"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}
    ),
    "lying offsets": hostile(
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 800]}}, b"x" * 8
    ),
    "negative": hostile({"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}, b"x" * 8),
    "no json": hostile(b"\x80\x04pickle"),
    "pickle": b"\x80\x04\x95" + b"x" * 400,
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("family", ["transformer", "bigram"])
def test_a_hostile_weights_file_is_a_quick_error_that_names_it(folder, name, family):
    if family == "bigram":
        run.write_config(folder, "bigram", Bigram(11, CountConfig()))
    (folder / run.WEIGHTS).write_bytes(HOSTILE[name])
    began = time.monotonic()
    with pytest.raises(UserError, match=r"model\.safetensors"):
        Run(folder).model()
    assert time.monotonic() - began < 2


def weights_of(folder):
    return read_tensors(folder / run.WEIGHTS)


def test_tensors_missing_left_over_misshapen_or_of_another_kind_are_named(folder):
    path, whole = folder / run.WEIGHTS, weights_of(folder)
    name = "head.weight"
    cases = {
        "lacks head.weight": {k: v for k, v in whole.items() if k != name},
        "has unknown extra": whole | {"extra": torch.zeros(3)},
        r"head.weight has shape \(8, 11\), expected \(11, 8\)": whole | {name: whole[name].T},
        "head.weight has type I64": whole | {name: torch.zeros(11, 8, dtype=torch.int64)},
        "head.weight holds NaN": whole | {name: torch.full((11, 8), float("nan"))},
    }
    for said, tensors in cases.items():
        write_tensors(path, tensors)
        with pytest.raises(UserError, match=said):
            Run(folder).model()


@pytest.mark.parametrize(
    "values",
    [
        {"vocab_size": 1 << 40},
        {"vocab_size": -1},
        {"vocab_size": "11"},
        {"vocab_size": True},
        {"vocab_size": 12},
        {"d_model": 1 << 60},
        {"d_model": 8.5},
        {"n_layers": 999},
        {"max_len": 1 << 22, "d_head": 1 << 12},
        {"n_heads": 0},
        {"norm": "none of ours"},
        {"surprise": 1},
        {"family": "nobody"},
        {"family": ["transformer"]},
        {"config": 3},
        {"rope_theta": "x"},
    ],
    ids=str,
)
def test_a_configuration_that_lies_is_a_quick_error_before_memory_is_taken(folder, values):
    change(folder, **values)
    began = time.monotonic()
    with pytest.raises(UserError) as error:
        Run(folder).model()
    assert time.monotonic() - began < 5
    assert "\n" not in str(error.value) and str(folder) in str(error.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("codes", torch.zeros(3)),
        ("codes", torch.zeros(2, 2, dtype=torch.int64)),
        ("totals", torch.zeros(5, dtype=torch.int64)),
        ("counts", None),
    ],
)
def test_counts_that_do_not_fit_are_refused(tmp_path, name, value):
    model = Bigram(11, CountConfig())
    run.write_config(tmp_path, "bigram", model)
    tensors = run.weights(model) | ({name: value} if value is not None else {})
    if value is None:
        del tensors[name]
    write_tensors(tmp_path / run.WEIGHTS, tensors)
    with pytest.raises(UserError, match=r"model\.safetensors"):
        Run(tmp_path).model()


@pytest.mark.parametrize("name", [run.CONFIG, run.WEIGHTS])
def test_a_link_to_a_device_is_not_followed_into_it(folder, name):
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    with pytest.raises(UserError, match=f"{name} is not a regular file"):
        Run(folder).model()


def test_metrics_never_write_through_a_link(tmp_path):
    (tmp_path / "precious").write_text("keep me")
    (tmp_path / run.METRICS).symlink_to(tmp_path / "precious")
    with pytest.raises(UserError, match=r"cannot write .*metrics\.jsonl"):
        run.MetricsLog(tmp_path)
    assert (tmp_path / "precious").read_text() == "keep me"


def test_metrics_are_cut_back_to_where_a_checkpoint_stood(tmp_path):
    metrics = run.MetricsLog(tmp_path)
    metrics.log("train", step=1, nats=0.5, odd=float("inf"))
    kept = metrics.offset()
    metrics.log("train", step=2, nats=0.4)
    metrics.close()
    with open(tmp_path / run.METRICS, "ab") as file:
        file.write(b'{"half of a li')
    metrics = run.MetricsLog(tmp_path, keep=kept)
    metrics.log("train", step=2, nats=0.3)
    metrics.close()
    lines = [json.loads(line) for line in (tmp_path / run.METRICS).read_text().splitlines()]
    assert lines == [
        {"event": "train", "step": 1, "nats": 0.5, "odd": None},
        {"event": "train", "step": 2, "nats": 0.3},
    ]


def test_metrics_shorter_than_remembered_are_refused_but_absent_ones_begin_anew(tmp_path):
    (tmp_path / run.METRICS).write_bytes(b"short\n")
    with pytest.raises(UserError, match="delete it to continue"):
        run.MetricsLog(tmp_path, keep=100)
    (tmp_path / run.METRICS).unlink()
    metrics = run.MetricsLog(tmp_path, keep=100)
    metrics.log("train", step=1)
    assert metrics.offset() == len('{"event": "train", "step": 1}\n')
    metrics.close()


def test_a_tied_weight_is_saved_once_and_comes_back_tied(tmp_path):
    config = DecoderConfig(
        n_layers=1, d_model=8, n_heads=2, n_kv_heads=2, d_head=4, d_ff=12, max_len=10, tied=True
    )
    model = Decoder(11, config)
    run.write_config(tmp_path, "transformer", model)
    write_tensors(tmp_path / run.WEIGHTS, run.weights(model))
    back = Run(tmp_path).model()
    assert back.head.weight is back.embedding.weight
    assert torch.equal(back.head.weight, model.head.weight)


def test_files_without_a_digest_are_read_too(folder):
    tensors = weights_of(folder)
    save_file(tensors, folder / run.WEIGHTS)
    assert Run(folder).model().vocab_size == 11


@pytest.mark.parametrize("name", ["gpt2", "my model"])
def test_a_hugging_face_folder_in_place_of_a_run_is_one_line_with_the_command(tmp_path, name):
    """It was called damaged: 'family'."""
    folder = tmp_path / name
    folder.mkdir()
    (folder / "config.json").write_text('{"architectures": ["GPT2LMHeadModel"], "n_embd": 8}')
    with pytest.raises(UserError) as caught:
        _ = Run(folder).description
    command = str(caught.value).split("`")[1]
    assert shlex.split(command) == ["regard", "import", str(folder), "--out", f"runs/{name}"]
    assert "\n" not in str(caught.value) and "Hugging Face folder" in str(caught.value)
    (folder / "config.json").write_text('{"n_embd": 8}')
    with pytest.raises(UserError, match=r"config\.json is damaged"):
        _ = Run(folder).description
