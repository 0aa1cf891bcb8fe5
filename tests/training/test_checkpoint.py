"""Checkpoints: whole or not there, damage found and named, the good one before it used."""

import errno
import json

import pytest
import torch

from regard.errors import UserError
from regard.training import checkpoint


def tensors(value: float):
    return {
        "model": {"a": torch.full((2, 3), value), "b": torch.arange(5)},
        "optimizer": {"a/momentum": torch.full((2, 3), -value), "a/step": torch.tensor(value)},
    }


def saved(run, *steps):
    for step in steps:
        checkpoint.save(run, step, tensors(step), {"step": step, "nats": 0.1 * step})


def test_what_was_saved_comes_back_exactly(tmp_path):
    saved(tmp_path, 7)
    groups, state = checkpoint.newest(tmp_path, print)
    assert state == {"step": 7, "nats": 0.1 * 7}
    for name, group in tensors(7).items():
        assert groups[name].keys() == group.keys()
        assert all(torch.equal(groups[name][key], group[key]) for key in group)


def test_the_newest_is_taken_by_number_and_only_two_are_kept(tmp_path):
    saved(tmp_path, 999_998, 999_999, 1_000_000)
    assert [p.name for p in checkpoint.steps(tmp_path)] == ["step-999999", "step-1000000"]
    assert checkpoint.newest(tmp_path, print)[1]["step"] == 1_000_000


def test_the_same_state_is_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        saved(tmp_path / name, 3)
    files = sorted((tmp_path / "a" / "checkpoints" / "step-000003").iterdir())
    assert len(files) == 3
    for file in files:
        assert file.read_bytes() == (tmp_path / "b" / file.relative_to(tmp_path / "a")).read_bytes()


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "checkpoint.json"])
@pytest.mark.parametrize("damage", ["gone", "empty", "truncated", "flipped"])
def test_damage_is_named_and_the_checkpoint_before_is_used(tmp_path, name, damage):
    saved(tmp_path, 4, 8)
    path = tmp_path / "checkpoints" / "step-000008" / name
    whole = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "flipped":
        place = whole.index(b"0.8") if name == "checkpoint.json" else len(whole) - 2
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    else:
        path.write_bytes(whole[: len(whole) // 2] if damage == "truncated" else b"")
    said = []
    _, state = checkpoint.newest(tmp_path, said.append)
    assert state["step"] == 4
    assert len(said) == 1 and name in said[0] and "trying step-000004" in said[0]


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "checkpoint.json"])
def test_no_flipped_bit_changes_what_is_loaded(tmp_path, name):
    saved(tmp_path, 8)
    path = tmp_path / "checkpoints" / "step-000008" / name
    whole = path.read_bytes()
    unnoticed = []
    for place in range(0, len(whole), 7):
        path.write_bytes(
            whole[:place] + bytes([whole[place] ^ (1 << place % 8)]) + whole[place + 1 :]
        )
        try:
            groups, state = checkpoint.load(path.parent)
        except UserError as error:
            assert "step-000008" in str(error)
            continue
        unnoticed.append(place)  # a space of the JSON file became another white space
        assert state == {"step": 8, "nats": 0.8}
        assert torch.equal(groups["model"]["a"], tensors(8)["model"]["a"])
    assert name == "checkpoint.json" or not unnoticed


def test_if_every_checkpoint_is_damaged_the_run_does_not_start_over_by_itself(tmp_path):
    saved(tmp_path, 4)
    (tmp_path / "checkpoints" / "step-000004" / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"every checkpoint .* is damaged"):
        checkpoint.newest(tmp_path, lambda text: None)
    assert checkpoint.newest(tmp_path / "new", print) is None


def test_a_manifest_cannot_name_files_outside_its_folder(tmp_path):
    saved(tmp_path, 4)
    path = tmp_path / "checkpoints" / "step-000004" / "checkpoint.json"
    manifest = json.loads(path.read_text())
    del manifest["seal"]
    manifest["checksums"] = {"../../secret": "x"}
    path.write_text(json.dumps(manifest | {"seal": checkpoint.seal(manifest)}))
    with pytest.raises(UserError, match="outside its folder"):
        checkpoint.load(path.parent)


@pytest.mark.parametrize("moment", range(5))
def test_a_failure_at_any_write_leaves_the_checkpoints_before_and_nothing_else(
    tmp_path, monkeypatch, moment
):
    saved(tmp_path, 4)
    calls = []

    def failing(function):
        def call(*arguments, **options):
            calls.append(function)
            if len(calls) > moment:
                raise OSError(errno.ENOSPC, "No space left on device")
            return function(*arguments, **options)

        return call

    for name in ("write_tensors", "write_json", "checksum"):
        monkeypatch.setattr(checkpoint, name, failing(getattr(checkpoint, name)))
    with pytest.raises(UserError, match=r"cannot write .*step-000008: No space left on device"):
        checkpoint.save(tmp_path, 8, tensors(8), {"step": 8})
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step-000004"]


def test_leftovers_of_a_killed_process_are_swept(tmp_path):
    saved(tmp_path, 4)
    left = tmp_path / "checkpoints" / ".step-000008.123.tmp"
    left.mkdir()
    (left / "model.safetensors").write_bytes(b"half")
    checkpoint.sweep(tmp_path)
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step-000004"]
