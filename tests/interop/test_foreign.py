"""Files of a stranger's folder: old and sharded ones are read, hostile and damaged ones refused."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from spoiling import GPT2_PARTS, edit, exported, refused, retensor

from regard.interop import import_hf
from regard.run import read_tensors


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
    assert refused(hf, *fragments)


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


def test_a_second_copy_of_a_tied_matrix_is_accepted_when_it_is_equal(tmp_path):
    hf = exported(tmp_path, tied=True)
    retensor(hf, lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"].clone()}))
    import_hf(hf, tmp_path / "good")
    assert "head.weight" not in read_tensors(tmp_path / "good" / "model.safetensors")
    retensor(hf, lambda t: t["lm_head.weight"].add_(1))
    assert refused(hf, "tie_word_embeddings", "differ")


def test_pickles_are_refused_with_the_way_out(tmp_path):
    hf = exported(tmp_path)
    (hf / "model.safetensors").rename(hf / "pytorch_model.bin")
    assert refused(hf, "pytorch_model.bin", "unsafe pickle", "safetensors")
    (hf / "pytorch_model.bin").unlink()
    assert refused(hf, "no weights")


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
    assert refused(hf, *fragments)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_links_out_of_the_folder_are_not_followed(name, tmp_path):
    hf = exported(tmp_path)
    (hf / name).rename(tmp_path / name)
    assert refused(hf, " has ", name)
    (hf / name).symlink_to(tmp_path / name)
    assert refused(hf, name, "outside the folder")
    (tmp_path / name).unlink()
    assert refused(hf, name, "cannot be read")
    (hf / name).unlink()
    (hf / name).mkdir()
    assert refused(hf, name, "not a file")


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
    assert refused(hf, name)


def test_a_truncated_weight_file_is_refused(tmp_path):
    hf = exported(tmp_path)
    whole = (hf / "model.safetensors").read_bytes()
    (hf / "model.safetensors").write_bytes(whole[:-100])
    assert refused(hf, "model.safetensors is damaged")
