"""Stock Hugging Face classes as oracles; they are slow to import, so only the tests that ask do it."""

import os
import warnings

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"  # read once, when huggingface_hub is imported


@pytest.fixture(scope="session")
def transformers():
    """The transformers library, offline; its own deprecation warnings are not ours to fix."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        for name in ("GPT2LMHeadModel", "LlamaForCausalLM", "Qwen3ForCausalLM"):
            getattr(transformers, name)
    return transformers
