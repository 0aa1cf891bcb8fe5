"""The sides of labelled records where more than their hash decides: a column, labels, groups,
scaffolds, folds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from regard.data.folds import (
    ClassCounter,
    by_scaffold,
    commonest,
    deal,
    k_folds,
    leave_one_out,
    murcko,
    side_of,
    together,
)
from regard.data.readers import Chunk
from regard.data.splits import hashes, sides_of
from regard.errors import UsageError, UserError
from regard.recipe import DataRecipe

if TYPE_CHECKING:
    from regard.data.labelled import Labelled

RULES = ("random", "stratified", "scaffold")  # every other data.split names a column
EVERYWHERE = 10  # records from which a class has one in each split
ENOUGH = 20  # records of a class that a held-out split should get; with fewer, they are dealt

Sides = NDArray[np.uint8]


def split_columns(recipe: DataRecipe) -> tuple[str, ...]:
    """The column that says the side and, after a comma, one that marks what validates."""
    if recipe.split in ("", *RULES):
        return ()
    names = tuple(name.strip() for name in recipe.split.split(","))
    if len(names) > 2 or not all(names):
        raise UsageError(f"data.split names one column or two, got {recipe.split!r}")
    return names


def columns_read(recipe: DataRecipe) -> tuple[str, ...]:
    """What a plan must read beside texts and targets."""
    return split_columns(recipe) + ((recipe.group,) if recipe.group else ())


def refuse_plan(recipe: DataRecipe) -> None:
    """Plans are for labelled records: other data has no columns beside, and goes by hash."""
    keys = ["group", "folds", "labels", "pattern", "positive"]
    if recipe.augment != "strands":  # the other strand of running text is one more text
        keys.append("augment")
    for key in keys:
        if getattr(recipe, key):
            raise UsageError(f"data.{key} is for labelled records, which this task does not read")
    if recipe.split not in ("", "random"):
        raise UsageError(f"data.split = {recipe.split!r} is for labelled records, not this task")


class Plan:
    """Which side each record of the training files is on; nothing is decided where a hash will do.

    What needs to see all records reads them once, when it is first asked. By default the records of
    small classes are dealt (`stratifies`), so that each split gets its share of them; those of
    large ones, and values, go by their hash.
    """

    def __init__(
        self, recipe: DataRecipe, fractions: list[float], given: bool, stratifies: bool = False
    ) -> None:
        self.recipe, self.fractions = recipe, fractions
        self.stratifies = stratifies and not recipe.split and any(fractions)
        self.columns = split_columns(recipe)
        self.decided = bool(self.columns or recipe.group or recipe.folds) or (
            recipe.split in RULES[1:]
        )
        self._all: Sides | None = None
        self.folds = recipe.folds  # how many there are; -1 until that is known
        self.notes: tuple[str, ...] = ()  # what a user must know of how it was decided
        if given and (self.columns or recipe.folds):
            key = "split" if self.columns else "folds"
            raise UsageError(
                f"data.{key} says which records of data.train are held out; leave data.valid and "
                "data.test empty"
            )
        if recipe.folds and recipe.split not in ("", *RULES[:2]):
            raise UsageError(f"data.folds cannot be joined with data.split = {recipe.split!r}")
        if self.columns and recipe.group:
            raise UsageError("data.group cannot be joined with a data.split column")

    def sides(self, source: Labelled, chunk: Chunk, start: int) -> Sides | None:
        """The sides of a chunk's records, the first of which is number `start`; None: by hash."""
        if not self.decided and not self.stratifies:
            return None
        if self.columns:
            return self._said(chunk)
        if self._all is None:
            self._all = self._decide(source) if self.decided else self._dealt(source)
        return self._all[start : start + len(chunk)].copy()

    def _said(self, chunk: Chunk) -> Sides:
        """What the split column says."""
        sides = []
        for i, cells in enumerate(getattr(chunk, "asides", ())):
            side = side_of(*cells)
            if side is None:
                shown = " and ".join(map(repr, cells))
                raise UserError(
                    f"{chunk.place(i)}: {shown} under {' and '.join(map(repr, self.columns))} says "
                    "no side; write train, valid or test (0, 1, 2), and true or false in a second"
                )
            sides.append(side)
        return np.array(sides, np.uint8)

    def _decide(self, source: Labelled) -> Sides:
        """The sides of all records at once."""
        recipe = self.recipe
        texts: list[str] = []  # of molecules alone
        keys, groups, labels = [], [], []
        for chunk in source.examples():
            keys.append(hashes(source.keys(chunk)))
            labels.append(hashes(["\0".join(cells) for cells in chunk.targets]))
            if recipe.group:
                groups.append(hashes([cells[-1] for cells in chunk.asides]))
            if recipe.split == "scaffold":
                texts += chunk.texts
        key = np.concatenate(keys)
        if groups:
            key = together(key, np.concatenate(groups))
        label = None
        if recipe.split == "stratified":
            label = np.unique(np.concatenate(labels), return_inverse=True)[1]
            if 2 * (int(label.max()) + 1) > len(label):
                raise UsageError(
                    "data.split = 'stratified' keeps the shares of labels, but most targets are "
                    "different; choose random, scaffold or a column"
                )
        valid, test = self.fractions
        shares = (1 - valid - test, valid, test)
        if recipe.folds:
            return self._folded(key, label)
        if recipe.split == "scaffold":
            if groups:
                raise UsageError("data.group cannot be joined with data.split = 'scaffold'")
            scaffolds, unread = murcko(texts)
            if unread:
                example = repr(texts[unread[0]][:40])
                self.notes = (f"{len(unread):,} are no molecules to RDKit, the first {example}",)
            return by_scaffold(scaffolds, shares).astype(np.uint8)
        seed = recipe.split_seed
        return deal(key, shares, labels=label, seed=seed).astype(np.uint8)

    def _dealt(self, source: Labelled) -> Sides:
        """The sides of all records by their hash but for those of small classes, of which every
        split gets its share, and of a class of one record training.
        """
        counter, keys = ClassCounter(len(source.names)), []
        for chunk in source.examples():
            keys.append(hashes(source.keys(chunk), self.recipe.split_seed))
            counter.add(chunk.targets)
        distinct, inverse = np.unique(np.concatenate(keys), return_inverse=True)
        sides = sides_of(distinct, *self.fractions)
        label = commonest(inverse, counter.rarest(), len(distinct))
        sizes = np.bincount(label + 1)[1:]  # of each class; -1 is of none
        least = min(share for share in self.fractions if share)
        small = (label >= 0) & (np.append(sizes, 0)[label] * least < ENOUGH)
        if small.any():
            valid, test = self.fractions
            shares = (1 - valid - test, valid, test)
            alone = small & (np.append(sizes, 0)[label] == 1)
            several = small & ~alone
            sides[alone] = 0
            if several.any():
                few, labels = distinct[several], label[several]
                sides[several] = deal(few, shares, labels=labels, everywhere=EVERYWHERE)
        return sides[inverse]

    def count_folds(self, source: Labelled) -> int:
        """How many folds there are: data.folds or, where one is left out, as many as records that
        need not stand together.
        """
        if self.recipe.folds == -1:
            self._all = self._decide(source)
        return self.folds

    def _folded(self, key: NDArray[np.uint64], label: NDArray[np.int64] | None) -> Sides:
        """One fold tests; of the rest, the share that validates, another for every fold: what all
        validations say together is not of the same few records.
        """
        recipe = self.recipe
        if recipe.folds == -1:
            folds = leave_one_out(key)
        else:
            folds = k_folds(key, recipe.folds, labels=label, seed=recipe.split_seed)
        self.folds = int(folds.max()) + 1
        if recipe.fold >= self.folds:
            raise UsageError(f"data.fold must be below the {self.folds:,} folds there are")
        sides = np.full(len(key), 2, np.uint8)
        rest = folds != recipe.fold
        shares = (1 - self.fractions[0], self.fractions[0])
        inner = None if label is None else label[rest]
        seed = recipe.split_seed + recipe.fold
        sides[rest] = deal(key[rest], shares, labels=inner, seed=seed)
        return sides
