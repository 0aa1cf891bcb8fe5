"""Which records are for training, validation and test.

By default the split of a record depends on its text only, through a hash: copies of a record are
never in two splits, and adding data moves no other record. Running text is cut: its beginning is
for training. Labelled records can also be split by a column, labels, groups, scaffolds or folds;
`SplitPlan` decides that for all records at once, from pure functions of their keys, labels and
groups. Records with the same key (the hash of their input) always share a fold, and nothing depends
on the order of the records but the scaffold split, which breaks ties by it.

Hashes are the first 64 bits of BLAKE2b (RFC 7693). Two different texts out of n collide with a
probability of about n²/2⁶⁵: one in three thousand for a hundred million records.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from regard.data.targets import MANY
from regard.data.text_files import Chunk
from regard.errors import UsageError, UserError
from regard.recipe import DataRecipe
from regard.tokenizers.smiles import rdkit, silence

if TYPE_CHECKING:
    from regard.data.text_files import FileSet

RULES = ("random", "stratified", "scaffold")  # every other data.split names a column
MIN_IN_EVERY_SPLIT = 10  # records from which a class has one in each split
ENOUGH = 20  # records of a class that a held-out split should get; smaller classes are stratified
SPLIT_WORDS = {
    **dict.fromkeys(("train", "training", "0"), 0),
    **dict.fromkeys(("valid", "validation", "val", "dev", "1"), 1),
    **dict.fromkeys(("test", "testing", "2"), 2),
}
TRUE, FALSE = ("true", "1", "yes"), ("", "false", "0", "no")

Hashes = NDArray[np.uint64]
Numbers = NDArray[np.int64]
Splits = NDArray[np.uint8]  # 0 train, 1 valid, 2 test


def hashes(texts: Sequence[str], seed: int = 0) -> Hashes:
    """Return a 64-bit hash of each text, the same on every machine and in every process."""
    salt = seed.to_bytes(16, "little", signed=True)
    digests = [
        blake2b(text.encode(errors="surrogatepass"), digest_size=8, salt=salt).digest()
        for text in texts
    ]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64, copy=False)


def assign(
    texts: Sequence[str], valid_fraction: float, test_fraction: float, seed: int = 0
) -> Splits:
    """Return the split of every text by its hash; equal texts are in one split."""
    return assign_hashes(hashes(texts, seed), valid_fraction, test_fraction)


def assign_hashes(values: Hashes, valid_fraction: float, test_fraction: float) -> Splits:
    """Return the split of the texts with these hashes."""
    _check_fractions(valid_fraction, test_fraction)
    uniform = (values >> np.uint64(11)).astype(np.float64) / 2.0**53  # exact, and never 1
    splits = (uniform < test_fraction + valid_fraction).astype(np.uint8)
    splits[uniform < test_fraction] = 2
    return splits


def cut_points(total: int, valid_fraction: float, test_fraction: float) -> tuple[int, int]:
    """Return where running text is cut: [0, a) is train, [a, b) valid, [b, total) test."""
    _check_fractions(valid_fraction, test_fraction)
    b = total - round(total * test_fraction)
    return max(0, b - round(total * valid_fraction)), b


def _check_fractions(valid_fraction: float, test_fraction: float) -> None:
    for name, value in (("valid_fraction", valid_fraction), ("test_fraction", test_fraction)):
        if not 0 <= value < 1:
            raise UsageError(f"data.{name} must be at least 0 and below 1, got {value}")
    if valid_fraction + test_fraction >= 1:
        raise UsageError(
            "data.valid_fraction and data.test_fraction must leave something to train on, got "
            f"{valid_fraction} and {test_fraction}"
        )


def assign_folds(
    keys: Hashes,
    shares: Sequence[float],
    *,
    labels: Numbers | None = None,
    seed: int = 0,
    in_every_fold: float = math.inf,
) -> Numbers:
    """Return the fold of every record, stratified: fold f gets `shares[f]` of each label.

    Distinct keys are assigned, each with the most frequent label of its records. Every fold gets
    its share of the keys of a label rounded up or down; what rounding takes from a fold at one
    label it gets back at the next (controlled rounding, Cox 1987). A label of at least
    `in_every_fold` keys has one in each fold with a share.
    """
    values, inverse = np.unique(keys, return_inverse=True)
    label = np.zeros(len(values), np.int64)
    if labels is not None:
        label = _most_frequent(inverse, labels, len(values))
    order = np.lexsort((_mix(values, seed), label))
    folds = np.empty(len(values), np.int64)
    weights = np.asarray(shares, np.float64) / sum(shares)
    owed = np.zeros(len(weights))
    start = 0
    for count in np.unique(label, return_counts=True)[1].tolist():
        exact = count * weights
        sizes = np.floor(exact + 1e-9).astype(np.int64)
        owed += exact - sizes
        fractional = exact - sizes > 1e-9  # integral shares are not rounded up
        left = int(count - sizes.sum())
        more = np.argsort(np.where(fractional, -owed, np.inf), kind="stable")[:left]
        sizes[more] += 1
        owed[more] -= 1
        empty = (sizes == 0) & (weights > 0) & (count >= in_every_fold)
        for fold in np.flatnonzero(empty).tolist():
            largest = int(sizes.argmax())
            sizes[[fold, largest]] += (1, -1)
            owed[[fold, largest]] += (-1, 1)
        folds[order[start : start + count]] = np.repeat(np.arange(len(weights)), sizes)
        start += count
    return folds[inverse]


def k_folds(keys: Hashes, k: int, *, labels: Numbers | None = None, seed: int = 0) -> Numbers:
    """Return the fold of every record; folds differ by at most one key, within each label too."""
    n_keys = len(np.unique(keys))
    if n_keys < k:
        raise UserError(f"data.folds = {k}, but there are only {n_keys:,} different records")
    return assign_folds(keys, [1 / k] * k, labels=labels, seed=seed)


def leave_one_out(keys: Hashes) -> Numbers:
    """Return a fold for every distinct key, in order of first occurrence."""
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def merge_groups(keys: Hashes, groups: Hashes) -> Hashes:
    """Return keys that are equal for all records linked by equal keys or equal groups, directly or
    through other records: the lowest key of each connected component.
    """
    unique, key = np.unique(keys, return_inverse=True)
    _, group = np.unique(groups, return_inverse=True)
    size = len(unique) + int(group.max(initial=-1)) + 1
    edges = coo_array((np.ones(len(keys)), (key, len(unique) + group)), shape=(size, size))
    n_components, component = connected_components(edges, directed=False)
    lowest = np.full(n_components, np.iinfo(np.uint64).max, np.uint64)
    np.minimum.at(lowest, component[key], keys)
    merged: Hashes = lowest[component[key]]
    return merged


def split_by_scaffold(scaffolds: Sequence[str], shares: tuple[float, float, float]) -> Splits:
    """Return splits of molecules that keep scaffolds intact: common ones train, rare ones test.

    The rule of MoleculeNet (Wu et al. 2018, section 3.2; arXiv:1703.00564) as DeepChem implements
    it: sets by descending size, then by their first molecule, last first, each into the first split
    with enough space.
    """
    members: dict[str, list[int]] = {}
    for i, scaffold in enumerate(scaffolds):
        members.setdefault(scaffold, []).append(i)
    train, valid = shares[0] * len(scaffolds), (shares[0] + shares[1]) * len(scaffolds)
    splits = np.zeros(len(scaffolds), np.uint8)
    counts = [0, 0, 0]
    for rows in sorted(members.values(), key=lambda rows: (-len(rows), -rows[0])):
        if counts[0] + len(rows) <= train:
            split = 0
        else:
            split = 1 if counts[0] + counts[1] + len(rows) <= valid else 2
        splits[rows] = split
        counts[split] += len(rows)
    return splits


def murcko_scaffolds(smiles: Sequence[str]) -> tuple[list[str], list[int]]:
    """Return the Bemis–Murcko scaffold of every molecule (J. Med. Chem. 1996, 39:2887), without
    chirality, and the indices of those that RDKit cannot parse: each is a scaffold of its own.
    """
    chem = rdkit()
    from rdkit.Chem.Scaffolds import MurckoScaffold

    scaffolds: list[str] = []
    invalid = []
    with silence():
        for i, text in enumerate(smiles):
            molecule = chem.MolFromSmiles(text)
            if molecule is None:
                invalid.append(i)
                scaffolds.append(text)
            else:
                scaffolds.append(
                    MurckoScaffold.MurckoScaffoldSmiles(mol=molecule, includeChirality=False)
                )
    return scaffolds, invalid


def parse_split(word: str, validates: str = "") -> int | None:
    """Return the split that a cell of a split column names; None if it names none.

    `validates` is the cell of a second column, which marks training records for validation.
    """
    split = SPLIT_WORDS.get(word.strip().lower())
    mark = validates.strip().lower()
    if split is None or mark not in (*TRUE, *FALSE):
        return None
    return 1 if mark in TRUE and split == 0 else split


class ClassCounter:
    """Numbers the classes of targets as they are written, in one or more columns."""

    def __init__(self, n_columns: int) -> None:
        self._numbers: list[dict[str, int]] = [{} for _ in range(n_columns)]  # of cells, by column
        self._codes: list[list[Numbers]] = [[] for _ in range(n_columns)]
        self._records = 0

    def add(self, targets: Sequence[tuple[str, ...]]) -> None:
        """Add records; an empty cell has no class."""
        self._records += len(targets)
        for column, (numbers, codes) in enumerate(zip(self._numbers, self._codes, strict=True)):
            if len(numbers) > MANY:  # no classes
                continue
            new = [
                numbers.setdefault(cells[column], len(numbers)) if cells[column] else -1
                for cells in targets
            ]
            codes.append(np.array(new, np.int64))

    def rarest(self) -> Numbers:
        """Return the number of the rarest class of each record, -1 for a record without one.

        A column with mostly distinct cells has no classes. Numbers depend on the classes, not on
        the order of the records.
        """
        label = np.full(self._records, -1, np.int64)
        label_count = np.full(self._records, np.iinfo(int).max)
        first = 0
        for numbers, codes in zip(self._numbers, self._codes, strict=True):
            code = np.concatenate(codes)
            if len(numbers) > MANY or 2 * len(numbers) > int((code >= 0).sum()):
                continue
            order = np.argsort(np.array([*numbers, ""], dtype=object)[:-1], kind="stable")
            rank = np.empty(len(numbers) + 1, np.int64)
            rank[order], rank[-1] = np.arange(len(numbers)), -1
            code = rank[code]
            sizes = np.bincount(code[code >= 0], minlength=len(numbers))
            count = np.append(sizes, np.iinfo(int).max)[code]
            rarer = count < label_count
            label = np.where(rarer, code + first, label)
            label_count = np.where(rarer, count, label_count)
            first += len(numbers)
        return label


def _most_frequent(keys: Numbers, labels: Numbers, count: int) -> Numbers:
    """Return the most frequent label of each of `count` keys; of ties, the lowest."""
    pairs, times = np.unique(np.stack([keys, labels]), axis=1, return_counts=True)
    order = np.lexsort((-pairs[1], times, pairs[0]))  # the last of each key is the one
    label = np.empty(count, np.int64)
    label[pairs[0][order]] = pairs[1][order]
    return label


def _mix(values: Hashes, seed: int) -> Hashes:
    """Return other hashes for every seed, by the finalizer of splitmix64 (Steele et al. 2014)."""
    x = values + np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def split_columns(recipe: DataRecipe) -> tuple[str, ...]:
    """Return the column that names the split and, after a comma, the one that marks validation."""
    if recipe.split in ("", *RULES):
        return ()
    names = tuple(name.strip() for name in recipe.split.split(","))
    if len(names) > 2 or not all(names):
        raise UsageError(f"data.split names one column or two, got {recipe.split!r}")
    return names


def columns_read(recipe: DataRecipe) -> tuple[str, ...]:
    """Return the columns that a plan reads besides texts and targets."""
    return split_columns(recipe) + ((recipe.group,) if recipe.group else ())


def refuse_plan(recipe: DataRecipe) -> None:
    """Raise a UsageError if the recipe asks for a split that only labelled records can have."""
    for key in ("group", "folds", "labels", "pattern", "positive"):
        if getattr(recipe, key):
            raise UsageError(f"data.{key} is for labelled records, which this task does not read")
    if recipe.split not in ("", "random"):
        raise UsageError(f"data.split = {recipe.split!r} is for labelled records, not this task")


class SplitPlan:
    """The split of each record in the training files, where more than its hash decides.

    If all records must be known for that, they are read once, when first needed. By default the
    records of small classes are stratified (`stratifies`), so that each split gets its share of
    them; those of large classes, and values, go by their hash.
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
        self._all: Splits | None = None
        self.folds = recipe.folds  # how many there are; -1 until that is known
        self.notes: tuple[str, ...] = ()  # what a user must know of the decision
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

    def splits(self, source: FileSet, chunk: Chunk, start: int) -> Splits | None:
        """Return the splits of a chunk whose first record is number `start`; None: by hash."""
        if not self.decided and not self.stratifies:
            return None
        if self.columns:
            return self._from_column(chunk)
        if self._all is None:
            self._all = self._decide(source) if self.decided else self._stratify(source)
        return self._all[start : start + len(chunk)].copy()

    def count_folds(self, source: FileSet) -> int:
        """Return the number of folds: data.folds or, to leave one out, that of distinct inputs or
        groups.
        """
        if self.recipe.folds == -1:
            self._all = self._decide(source)
        return self.folds

    def _from_column(self, chunk: Chunk) -> Splits:
        splits = []
        for i, cells in enumerate(getattr(chunk, "asides", ())):
            split = parse_split(*cells)
            if split is None:
                shown, columns = (" and ".join(map(repr, x)) for x in (cells, self.columns))
                raise UserError(
                    f"{chunk.place(i)}: {shown} under {columns} names no split; write train, valid "
                    "or test (0, 1, 2), and true or false in a second"
                )
            splits.append(split)
        return np.array(splits, np.uint8)

    @property
    def _shares(self) -> tuple[float, float, float]:
        valid, test = self.fractions
        return 1 - valid - test, valid, test

    def _decide(self, source: FileSet) -> Splits:
        recipe = self.recipe
        smiles: list[str] = []
        keys, groups, labels = [], [], []
        for chunk in source.records():
            keys.append(hashes(source.keys(chunk)))
            labels.append(hashes(["\0".join(cells) for cells in chunk.targets]))
            if recipe.group:
                groups.append(hashes([cells[-1] for cells in chunk.asides]))
            if recipe.split == "scaffold":
                smiles += chunk.texts
        key = np.concatenate(keys)
        if groups:
            key = merge_groups(key, np.concatenate(groups))
        label = None
        if recipe.split == "stratified":
            label = np.unique(np.concatenate(labels), return_inverse=True)[1]
            if 2 * (int(label.max()) + 1) > len(label):
                raise UsageError(
                    "data.split = 'stratified' keeps the shares of labels, but most targets are "
                    "different; choose random, scaffold or a column"
                )
        if recipe.folds:
            return self._fold_splits(key, label)
        if recipe.split == "scaffold":
            if groups:
                raise UsageError("data.group cannot be joined with data.split = 'scaffold'")
            scaffolds, invalid = murcko_scaffolds(smiles)
            if invalid:
                example = repr(smiles[invalid[0]][:40])
                self.notes = (f"{len(invalid):,} are no molecules to RDKit, the first {example}",)
            return split_by_scaffold(scaffolds, self._shares)
        seed = recipe.split_seed
        return assign_folds(key, self._shares, labels=label, seed=seed).astype(np.uint8)

    def _stratify(self, source: FileSet) -> Splits:
        """Return the splits of all records by hash, except that every split gets its share of small
        classes, and training the classes of one record.
        """
        counter, keys = ClassCounter(len(source.names)), []
        for chunk in source.records():
            keys.append(hashes(source.keys(chunk), self.recipe.split_seed))
            counter.add(chunk.targets)
        distinct, inverse = np.unique(np.concatenate(keys), return_inverse=True)
        splits = assign_hashes(distinct, *self.fractions)
        label = _most_frequent(inverse, counter.rarest(), len(distinct))
        sizes = np.append(np.bincount(label + 1)[1:], 0)[label]  # of the class; -1 is no class
        least = min(share for share in self.fractions if share)
        small = (label >= 0) & (sizes * least < ENOUGH)
        splits[small & (sizes == 1)] = 0
        shared = small & (sizes > 1)
        if shared.any():
            splits[shared] = assign_folds(
                distinct[shared],
                self._shares,
                labels=label[shared],
                in_every_fold=MIN_IN_EVERY_SPLIT,
            )
        return splits[inverse]

    def _fold_splits(self, key: Hashes, label: Numbers | None) -> Splits:
        """Return splits in which one fold is for test. Of the others, the share that validates
        differs from fold to fold, so that all validations together cover many records.
        """
        recipe = self.recipe
        if recipe.folds == -1:
            folds = leave_one_out(key)
        else:
            folds = k_folds(key, recipe.folds, labels=label, seed=recipe.split_seed)
        self.folds = int(folds.max()) + 1
        if recipe.fold >= self.folds:
            raise UsageError(f"data.fold must be below the {self.folds:,} folds there are")
        splits = np.full(len(key), 2, np.uint8)
        rest = folds != recipe.fold
        shares = (1 - self.fractions[0], self.fractions[0])
        inner = None if label is None else label[rest]
        seed = recipe.split_seed + recipe.fold
        splits[rest] = assign_folds(key[rest], shares, labels=inner, seed=seed)
        return splits
