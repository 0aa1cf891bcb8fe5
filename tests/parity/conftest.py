"""Stock Hugging Face classes as oracles; slow to import, so only the tests that ask do it."""

import os
import warnings

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"  # read once, when huggingface_hub is imported


@pytest.fixture(autouse=True)
def one_thread():
    """Models this small gain nothing from threads, which wait for each other on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def transformers():
    """The transformers library, offline; its own deprecation warnings are not ours to fix."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        decoders = ("GPT2LMHeadModel", "LlamaForCausalLM", "Qwen3ForCausalLM")
        for name in (*decoders, "MarianMTModel", "PegasusForConditionalGeneration"):
            getattr(transformers, name)
    return transformers
