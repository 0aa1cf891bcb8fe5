"""A task: classes that have an order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from regard.tasks.prediction import LabelTask, PredictionConfig


@dataclass(frozen=True, kw_only=True)
class OrdinalConfig(PredictionConfig):
    """Settings of ordinal classification."""

    name: str = "ordinal"
    descending: bool = False


class OrdinalTask(LabelTask):
    """Predict a class of an ordered set."""

    name = "ordinal"
    purpose = "ordinal classification"
    Config: ClassVar[type] = OrdinalConfig

    @classmethod
    def suggest(cls, columns, names, *, texts):
        """Only a user knows that classes have an order."""
        return None
