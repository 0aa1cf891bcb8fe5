"""Each model class is registered for the formats that it can be exported in."""

import numpy as np
import pytest
from spoiling import make_run

from regard.errors import UserError
from regard.interop import EXPORTERS, find_exporter, load_exporters
from regard.interop.hugging_face import export_hf
from regard.interop.word2vec_format import export_vec, import_vec, write_vec
from regard.models.decoder import Decoder
from regard.models.hyena import HyenaModel
from regard.models.recurrent import LSTMModel
from regard.models.word2vec import CBOW, SkipGram
from regard.run_folders import CANDIDATES


def test_models_are_registered_by_their_exact_class():
    load_exporters()
    assert Decoder in EXPORTERS["hf"] and HyenaModel not in EXPORTERS["hf"]
    assert set(EXPORTERS["vec"]) == {CBOW, SkipGram}


def test_an_exporter_comes_with_the_model_of_the_run(tmp_path):
    choose_format, model = find_exporter("hf", make_run(tmp_path / "run"))
    assert isinstance(model, Decoder)
    assert choose_format(model.config).name == "Qwen3ForCausalLM"


def test_a_model_without_a_class_is_refused_with_those_that_have_one(tmp_path):
    model = LSTMModel(9, LSTMModel.PRESETS[next(iter(LSTMModel.PRESETS))](1, 8))
    run = make_run(tmp_path / "run", "lstm", model)
    with pytest.raises(UserError, match=r"LSTMModel cannot be .* a Hugging Face folder; .*Decoder"):
        export_hf(run, tmp_path / "out")
    with pytest.raises(UserError, match=r"as word vectors as text; .*SkipGram"):
        export_vec(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_other_format_of_a_model_is_named(tmp_path):
    write_vec(tmp_path / "words.vec", ["a", "b"], np.eye(2, dtype=np.float32))
    import_vec(tmp_path / "words.vec", tmp_path / "run")
    with pytest.raises(UserError, match="use --to vec"):
        export_hf(tmp_path / "run", tmp_path / "hf")


def test_a_candidate_that_can_be_exported_is_named(tmp_path):
    """The model that was kept had no class in Hugging Face's library; the Transformer beside it
    has one.
    """
    model = LSTMModel(9, LSTMModel.PRESETS[next(iter(LSTMModel.PRESETS))](1, 8))
    run = make_run(tmp_path / "run", "lstm", model)
    (run / CANDIDATES).mkdir()
    candidate = make_run(run / CANDIDATES / "transformer")
    make_run(run / CANDIDATES / "lstm", "lstm", model)
    with pytest.raises(UserError, match=f"of the models that were tried, {candidate} can$"):
        export_hf(run, tmp_path / "out")
