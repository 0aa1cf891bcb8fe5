"""Held-out data of a run."""

import pytest

from regard.errors import UserError
from regard.evaluation.eval_data import held_out
from regard.registry import TOKENIZERS


def test_a_folder_without_data_asks_for_a_file(tmp_path):
    with pytest.raises(UserError, match="name a file to measure on"):
        held_out(tmp_path, TOKENIZERS["characters"].train(["a"]))
