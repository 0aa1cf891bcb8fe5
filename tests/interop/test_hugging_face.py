"""Hugging Face folders: what is written; old and sharded files are read, damaged ones refused."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from spoiling import exported, make_run, refused, retensor

from regard.errors import UserError
from regard.interop.hugging_face import export_hf, import_hf, sines_first, split_rows
from regard.run import Run
from regard.storage import read_tensors


@given(st.integers(1, 9), st.integers(1, 5), st.integers(0, 1))
def test_the_order_of_coordinates_is_undone_bit_for_bit(rows, columns, dim):
    conversion = sines_first(dim, split_rows(lambda _: (1, rows - 1)))
    ours = torch.randn(rows, columns)
    theirs = conversion.to_hf(ours, None)
    assert torch.equal(conversion.from_hf(theirs), ours)
    each = torch.cat(theirs).movedim(dim, 0)
    expected = ours.movedim(dim, 0)
    assert torch.equal(each[: -(-len(each) // 2)], expected[::2])


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


def test_the_report_says_what_is_in_the_folder(tmp_path):
    run = make_run(tmp_path / "run", dropout=0.1)
    report = export_hf(run, tmp_path / "hf")
    assert report["class"] == "Qwen3ForCausalLM"
    assert report["files"] == sorted(path.name for path in (tmp_path / "hf").iterdir())
    assert set(report["files"]) >= {"config.json", "generation_config.json", "model.safetensors"}
    assert set(report["files"]) >= {"tokenizer.json", "tokenizer_config.json", "README.md"}
    assert report["parameters"] == sum(p.numel() for p in Run(run).model().parameters())
    assert report["left_out"] == {"dropout": 0.1}


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


def test_a_run_folder_is_no_hugging_face_folder(tmp_path):
    run = make_run(tmp_path / "run")
    assert refused(run, "run folder of regard")
    assert refused(tmp_path / "nowhere", "no such folder")


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
