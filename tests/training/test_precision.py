"""Devices and precisions: what is chosen, what is refused, and that switches are put back."""

import pytest
import torch

from regard.errors import UserError
from regard.recipe import TrainRecipe
from regard.training.precision import autocast, choose_device, choose_precision, idle, settings

CPU = torch.device("cpu")


def test_the_device_is_a_gpu_where_there_is_one():
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert choose_device("auto").type == expected and choose_device("cpu") == CPU


@pytest.mark.parametrize(
    ("name", "words"),
    [("gpu7", "is not a device"), ("meta", "is not supported"), ("cuda:99", "CUDA devices")],
)
def test_a_device_that_is_not_there_is_refused(name, words):
    with pytest.raises(UserError, match=words):
        choose_device(name)


def test_bf16_is_for_a_gpu():
    assert choose_precision(TrainRecipe(), CPU) == "fp32"
    assert choose_precision(TrainRecipe(precision="fp64"), CPU) == "fp64"
    with pytest.raises(UserError, match="bf16 is for a GPU"):
        choose_precision(TrainRecipe(precision="bf16"), CPU)
    x = torch.randn(2, 2)
    with autocast("bf16", CPU):
        assert (x @ x).dtype == torch.bfloat16
    with autocast("fp32", CPU):
        assert (x @ x).dtype == torch.float32


def test_other_gpus_are_mentioned_once_one_is_used(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert "--nproc-per-node 4" in idle(torch.device("cuda"))
    assert idle(CPU) == idle(torch.device("cuda:1")) == ""


def test_switches_are_put_back():
    before = torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled()
    with pytest.raises(KeyError), settings(TrainRecipe(), CPU):
        torch.set_float32_matmul_precision("medium")
        torch.use_deterministic_algorithms(True)
        raise KeyError
    after = torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled()
    assert after == before
