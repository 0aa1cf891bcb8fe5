"""Opening run folders: the pipeline of the task, and messages for what does not fit."""

from __future__ import annotations

import pytest

from regard.api import load
from regard.decoding import ForbiddenTransitions
from regard.errors import UsageError, UserError
from regard.layers.int8 import Int8Linear
from regard.models.counts import Bigram, CountConfig
from regard.models.decoder import Decoder, modern
from regard.pipelines.generator import Generator
from regard.pipelines.loading import load_forbidden, load_run_tokenizer
from regard.registry import TOKENIZERS
from regard.run import FORBIDDEN, WEIGHTS, Run, weights, write_config
from regard.storage import write_tensors
from regard.tokenizers import TOKENIZER

LETTERS = TOKENIZERS["characters"].train(["abcdef"])


@pytest.fixture
def run(tmp_path):
    def run(model, name):
        write_config(tmp_path, name, model)
        write_tensors(tmp_path / WEIGHTS, weights(model))
        LETTERS.save(tmp_path / TOKENIZER)
        return tmp_path

    return run


def test_a_run_is_opened_as_the_pipeline_of_its_task(run):
    folder = run(Bigram(LETTERS.vocab_size, CountConfig()), "bigram")
    for source in (folder, str(folder), Run.open(folder)):
        pipeline = load(source)
        assert isinstance(pipeline, Generator) and pipeline.run.path == folder
        assert pipeline.tokenizer.equals(LETTERS)
    assert isinstance(load(folder, verb="generate"), Generator)


def test_a_command_that_does_not_apply_names_those_that_do(run):
    folder = run(Bigram(LETTERS.vocab_size, CountConfig()), "bigram")
    for verb in ("translate", "predict", "embed"):
        with pytest.raises(UserError) as caught:
            load(folder, verb=verb)
        message = str(caught.value)
        assert f"{folder} is of task next (language modelling)" in message
        assert f"`regard {verb}` does not apply to it: use `regard generate {folder}`" in message


def test_linear_layers_are_stored_in_int8_if_asked(run):
    folder = run(Decoder(LETTERS.vocab_size, modern(1, 32)), "transformer")
    small, exact = load(folder, int8=True), load(folder)
    assert any(isinstance(module, Int8Linear) for module in small.model.modules())
    assert not any(isinstance(module, Int8Linear) for module in exact.model.modules())
    (_, rough), (_, fine) = small.score("abc"), exact.score("abc")
    assert rough == pytest.approx(fine, abs=0.2)


def test_language_models_do_not_predict_together(run):
    folder = run(Bigram(LETTERS.vocab_size, CountConfig()), "bigram")
    with pytest.raises(UsageError, match="is of task next"):
        load(folder, folder)


def test_files_that_do_not_fit_the_model_are_named(run):
    folder = run(Bigram(LETTERS.vocab_size, CountConfig()), "bigram")
    size = LETTERS.vocab_size
    assert load_forbidden(Run.open(folder), size) is None
    ForbiddenTransitions.from_pairs([(4, 5)], size + 1).save(folder / FORBIDDEN)
    with pytest.raises(UserError, match=f"is for {size + 1} tokens, not {size}"):
        load(folder)
    with pytest.raises(UserError, match=rf"tokenizer\.json has {size} tokens, config\.json says 7"):
        load_run_tokenizer(Run.open(folder), TOKENIZER, 7)
    with pytest.raises(UserError, match="nowhere"):
        load(folder / "nowhere")
