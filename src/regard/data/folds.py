"""Which fold each record of a finished list falls in, as pure functions of keys, labels and groups.

Where `splits` decides for one record at a time, these see all of them, and can therefore keep the
shares of every label, whole groups together, and every fold as large as the next. Records with the
same key (the hash of their input) always share a fold; nothing depends on the order of the records
but the scaffold split, which breaks ties by it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from regard.data.splits import Hashes
from regard.data.targets import MANY
from regard.errors import UserError
from regard.tokens.chemistry import rdkit, silence

Numbers = NDArray[np.int64]

SIDE_WORDS = {
    **dict.fromkeys(("train", "training", "0"), 0),
    **dict.fromkeys(("valid", "validation", "val", "dev", "1"), 1),
    **dict.fromkeys(("test", "testing", "2"), 2),
}
TRUE, FALSE = ("true", "1", "yes"), ("", "false", "0", "no")


def deal(
    keys: Hashes,
    shares: Sequence[float],
    *,
    labels: Numbers | None = None,
    seed: int = 0,
    everywhere: float = math.inf,
) -> Numbers:
    """The fold of every record, where fold f is to get `shares[f]` of the whole, and of each label.

    Distinct keys are dealt, each with the label that most of its records have. Every fold then has
    its share of the keys of each label rounded up or down, never further off, and what rounding
    takes from a fold at one label it gets back at the next (controlled rounding, Cox 1987). A label
    of `everywhere` keys or more has one in each fold that has a share.
    """
    values, inverse = np.unique(keys, return_inverse=True)
    label = np.zeros(len(values), np.int64)
    if labels is not None:
        label = commonest(inverse, labels, len(values))
    order = np.lexsort((_mixed(values, seed), label))
    folds = np.empty(len(values), np.int64)
    wanted = np.asarray(shares, np.float64) / sum(shares)
    owed = np.zeros(len(wanted))
    start = 0
    for count in np.unique(label, return_counts=True)[1].tolist():
        exact = count * wanted
        sizes = np.floor(exact + 1e-9).astype(np.int64)
        owed += exact - sizes
        rest = exact - sizes > 1e-9  # whole shares are not rounded up
        left = int(count - sizes.sum())
        more = np.argsort(np.where(rest, -owed, np.inf), kind="stable")[:left]
        sizes[more] += 1
        owed[more] -= 1
        for fold in np.flatnonzero((sizes == 0) & (wanted > 0) & (count >= everywhere)).tolist():
            most = int(sizes.argmax())
            sizes[[fold, most]] += (1, -1)
            owed[[fold, most]] += (-1, 1)
        folds[order[start : start + count]] = np.repeat(np.arange(len(wanted)), sizes)
        start += count
    return folds[inverse]


def k_folds(keys: Hashes, k: int, *, labels: Numbers | None = None, seed: int = 0) -> Numbers:
    """Every record in one of k folds that differ by at most one key, and within each label too."""
    found = len(np.unique(keys))
    if found < k:
        raise UserError(f"data.folds = {k}, but there are only {found:,} different records")
    return deal(keys, [1 / k] * k, labels=labels, seed=seed)


def leave_one_out(keys: Hashes) -> Numbers:
    """A fold for every distinct key, numbered as they first come: as many folds as inputs."""
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def together(keys: Hashes, groups: Hashes) -> Hashes:
    """A key for every record that it shares with all it must stand beside: those with its key,
    those of its group, those with the keys of these, and so on.
    """
    _, key = np.unique(keys, return_inverse=True)
    _, group = np.unique(groups, return_inverse=True)
    lowest = keys.copy()
    while True:
        before = lowest
        for number in (key, group):
            least = np.full(int(number.max(initial=-1)) + 1, np.iinfo(np.uint64).max, np.uint64)
            np.minimum.at(least, number, lowest)
            lowest = least[number]
        if (lowest == before).all():
            return lowest


def by_scaffold(scaffolds: Sequence[str], shares: tuple[float, float, float]) -> Numbers:
    """The sides of molecules, whole scaffolds together: the largest train, the rarest are tested.

    The rule of MoleculeNet (Wu et al. 2018, section 3.2; arXiv:1703.00564) as DeepChem carries it
    out: sets by falling size, then by their first molecule, the last first, each into the first
    side with room.
    """
    members: dict[str, list[int]] = {}
    for i, scaffold in enumerate(scaffolds):
        members.setdefault(scaffold, []).append(i)
    train, valid = shares[0] * len(scaffolds), (shares[0] + shares[1]) * len(scaffolds)
    sides = np.zeros(len(scaffolds), np.int64)
    counts = [0, 0, 0]
    for chosen in sorted(members.values(), key=lambda rows: (-len(rows), -rows[0])):
        if counts[0] + len(chosen) <= train:
            side = 0
        else:
            side = 1 if counts[0] + counts[1] + len(chosen) <= valid else 2
        sides[chosen] = side
        counts[side] += len(chosen)
    return sides


def murcko(smiles: Sequence[str]) -> tuple[list[str], list[int]]:
    """The Bemis–Murcko scaffold of every molecule (J. Med. Chem. 1996, 39:2887), without chirality,
    and the places of those that RDKit cannot read: each of them is its own.
    """
    chem = rdkit()
    from rdkit.Chem.Scaffolds import MurckoScaffold

    found: list[str] = []
    unread = []
    with silence():
        for i, text in enumerate(smiles):
            molecule = chem.MolFromSmiles(text)
            if molecule is None:
                unread.append(i)
                found.append(text)
            else:
                scaffold = MurckoScaffold.MurckoScaffoldSmiles(mol=molecule, includeChirality=False)
                found.append(scaffold)
    return found, unread


def side_of(word: str, marked: str = "") -> int | None:
    """The side that a cell of a split column names; None if it names none.

    `marked` is the cell of a second column, which marks the training records that validate.
    """
    side = SIDE_WORDS.get(word.strip().lower())
    mark = marked.strip().lower()
    if side is None or mark not in (*TRUE, *FALSE):
        return None
    return 1 if mark in TRUE and side == 0 else side


class ClassCounter:
    """Numbers for the classes of targets as they are written, one column of them or several."""

    def __init__(self, columns: int) -> None:
        self._numbers: list[dict[str, int]] = [{} for _ in range(columns)]  # by column: of a cell
        self._codes: list[list[Numbers]] = [[] for _ in range(columns)]
        self._records = 0

    def add(self, targets: Sequence[tuple[str, ...]]) -> None:
        """Count some records; an empty cell is of no class."""
        self._records += len(targets)
        for column, (known, codes) in enumerate(zip(self._numbers, self._codes, strict=True)):
            if len(known) > MANY:  # no classes
                continue
            found = [
                known.setdefault(cells[column], len(known)) if cells[column] else -1
                for cells in targets
            ]
            codes.append(np.array(found, np.int64))

    def rarest(self) -> Numbers:
        """The number of the rarest class that each record has, -1 of a record without one.

        A column most of whose cells are different has no classes. Numbers depend on the classes
        and not on the order of the records.
        """
        first, label, fewest = 0, None, None
        for known, codes in zip(self._numbers, self._codes, strict=True):
            code = np.concatenate(codes)
            if len(known) > MANY or 2 * len(known) > int((code >= 0).sum()):
                code, known = np.full(self._records, -1, np.int64), {}
            order = np.argsort(np.array([*known, ""], dtype=object)[:-1], kind="stable")
            rank = np.empty(len(known) + 1, np.int64)
            rank[order], rank[-1] = np.arange(len(known)), -1
            code = rank[code]
            sizes = np.append(np.bincount(code[code >= 0], minlength=len(known)), np.iinfo(int).max)
            own, count = np.where(code >= 0, code + first, -1), sizes[code]
            if label is None or fewest is None:
                label, fewest = own, count
            rarer = count < fewest
            label, fewest = np.where(rarer, own, label), np.where(rarer, count, fewest)
            first += len(known)
        assert label is not None  # there is a target
        return label


def commonest(keys: Numbers, labels: Numbers, count: int) -> Numbers:
    """For each key number the label that most of its records have; of equals, the lowest."""
    pairs, times = np.unique(np.stack([keys, labels]), axis=1, return_counts=True)
    order = np.lexsort((-pairs[1], times, pairs[0]))  # the last of each key is the one
    found = np.empty(count, np.int64)
    found[pairs[0][order]] = pairs[1][order]
    return found


def _mixed(values: Hashes, seed: int) -> Hashes:
    """Other hashes for every seed, by the finaliser of splitmix64 (Steele et al. 2014)."""
    x = values + np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
