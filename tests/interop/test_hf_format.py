"""Parts of a Hugging Face folder: conversions of tensors are undone, links are not followed."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from spoiling import exported, refused

from regard.interop import import_hf
from regard.interop.hf_format import sines_first, split_rows


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
