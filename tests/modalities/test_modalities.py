"""The base classes of modalities and augmentations: a new one needs only what is its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from regard.data.column_kinds import CellSample
from regard.errors import UsageError, UserError
from regard.modalities import Augmentation, Modality
from regard.registry import AUGMENTATIONS, MODALITIES, MODELS
from regard.tokenizers.tokenizer import PLAIN


@dataclass(frozen=True, kw_only=True)
class NumbersConfig:
    name: str = "numbers"
    digits: int = 2


class Numbers(Modality):
    """Numbers, one a line of a file."""

    name, kind, words = "numbers", "numbers", ("number", "numbers")
    Config: ClassVar[type] = NumbersConfig

    def read(self, request):
        raise NotImplementedError

    def items(self, path, encoder, *, strict=True):
        for i, line in enumerate(path.read_text().split()):
            yield f"{path}[{i}]", round(float(line), self.config.digits)

    def fit_encoder(self, items):
        raise NotImplementedError

    def defaults(self, tables, source, kind):
        raise NotImplementedError

    def report(self, sources, why):
        raise NotImplementedError


def test_an_item_is_opened_by_path_or_by_its_number_in_a_file(tmp_path):
    (tmp_path / "a.txt").write_text("1.234\n5.678\n")
    (tmp_path / "b[1]").write_text("9\n")
    numbers = Numbers()
    assert numbers.open("a.txt", None, tmp_path) == (f"{tmp_path}/a.txt[0]", 1.23)
    assert numbers.open("a.txt[1]", None, tmp_path) == (f"{tmp_path}/a.txt[1]", 5.68)
    assert numbers.open("b[1]", None, tmp_path)[1] == 9  # a file of that name comes first
    assert Numbers(NumbersConfig(digits=1)).open("a.txt", None, tmp_path)[1] == 1.2
    path = tmp_path / "a.txt"
    assert numbers.open_all([path, 7.0, f"{path}[1] "], None) == [1.23, 7.0, 5.68]
    for name, message in (
        ("", "an empty path names no file"),
        ("c.txt", "no such file or folder"),
        ("a.txt[2]", "has no number 2"),
    ):
        with pytest.raises(UserError, match=message):
            numbers.open(name, None, tmp_path)


def test_what_a_modality_leaves_open_has_defaults(tmp_path):
    numbers = Numbers()
    assert not Numbers.recognize([tmp_path]) and not Numbers.parts(tmp_path)
    assert Numbers.recognize_cells(CellSample(cells=["1"])) is None
    assert numbers.canonical() is PLAIN and numbers.training_limit == float("inf")
    with pytest.raises(UserError, match="numbers have labels or values, not texts"):
        numbers.pair_defaults({}, None)


def test_an_abstract_modality_cannot_be_made():
    with pytest.raises(TypeError, match="abstract"):
        Modality()


@pytest.mark.parametrize("name", sorted(MODALITIES))
def test_every_modality_has_its_name_words_and_models(name):
    cls = MODALITIES[name]
    assert (cls.name, cls.Config().name) == (name, name)
    assert cls.words[0] != cls.words[1] and MODELS.names(reads=cls.kind)
    assert cls().config == cls.Config()


@pytest.mark.parametrize("name", sorted(AUGMENTATIONS))
def test_every_augmentation_has_its_name_and_a_kind_of_input(name):
    cls = AUGMENTATIONS[name]
    assert cls.Config().name == name
    assert cls.kind in {MODALITIES[one].kind for one in MODALITIES}


def test_an_augmentation_does_nothing_by_default():
    class Nothing(Augmentation):
        Config = NumbersConfig

    nothing = Nothing()
    assert nothing.views() is None and nothing.module(None, aligned=False) is None
    assert nothing.canonical(PLAIN) is PLAIN
    with pytest.raises(UsageError, match="'numbers' is for records, not running text"):
        nothing.running_text(iter(()))
