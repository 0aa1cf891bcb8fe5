"""Which records are for training, validation and test.

By default the split of a record depends on its text only, through a hash: copies of a record are
never in two splits, and adding data moves no other record. Running text is cut: its beginning is
for training. Labelled records can also be split by a column, labels, groups, scaffolds or folds;
`SplitPlan` decides that for all records at once, from pure functions of their keys, labels and
groups. Records with the same key (the hash of their input) always share a fold, and nothing depends
on the order of the records but the scaffold split, which breaks ties by it.

Hashes are the first 64 bits of BLAKE2b (RFC 7693). Two different texts out of n collide with a
probability of about n²/2⁶⁵: one in three thousand for a hundred million records.

Duplicates and leaks: records that occur more than once, or in training and in held-out data.

Records are compared in a canonical form. Exact copies are found by 64-bit hashes. Two records are
near duplicates if the Jaccard index of their sets of k-mers is at least NEAR: candidates come from
MinHash signatures cut into bands (Broder 1997; Leskovec, Rajaraman & Ullman, Mining of Massive
Datasets, section 3.4), and each is checked exactly. A near pair shares no band once in five
thousand times; if many training records share a band, two of them are checked. Time and memory are
bounded: at most BUDGET symbols of either split are compared, evenly spread, and the counts say so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from regard.data.targets import MANY
from regard.data.text_files import Chunk
from regard.errors import UsageError, UserError
from regard.recipe import DataRecipe
from regard.tokenizers.smiles import canonical_smiles, rdkit, silence
from regard.tokenizers.tokenizer import Canonical

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
    from scipy.sparse import coo_array  # takes half a second to import
    from scipy.sparse.csgraph import connected_components

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


MAX_SLOW_BYTES = 1 << 25  # of texts that are compared in a slow form, which takes minutes
EXAMPLES = 5  # records shown; all of them are counted
PENDING = 1 << 20  # hashes collected before they are merged with the others
NEAR = 0.8  # Jaccard index from which two records are near duplicates
BANDS, ROWS = 16, 4  # a pair at 0.8 shares a band with probability 1 - (1 - 0.8⁴)¹⁶ = 0.9998
CANDIDATE = 0.6  # share of equal hashes, which estimates the index to within 0.05
BUDGET = 20_000_000  # symbols of training, and as many of another split, that are compared
BLOCK = 50_000  # symbols processed at once, in the processor's cache
SMALL_ALPHABET = 6  # letters that make up nearly all of DNA, with those for unknown bases
GAMMA = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ over the golden ratio, odd


class Augmentation(Protocol):
    """What makes several views of one record."""

    def canonical(self, form: Canonical) -> Canonical:
        """Return a form under which all views of a record are equal."""


Words = NDArray[np.uint64]  # hashes of k-mers
Indices = NDArray[np.int64]


def canonical_form(
    form: Canonical, augmentation: Augmentation | None, format: str, size: int
) -> Canonical:
    """Return the form in which records of `format`, `size` bytes in all, are compared.

    `form` is that of the modality: texts that its tokenizer does not tell apart are the same
    record. So are all views of a record that an augmentation makes.
    """
    if format == "smi":
        form = canonical_smiles()
    if augmentation is not None:
        form = augmentation.canonical(form)
    if form.slow and size > MAX_SLOW_BYTES:
        return Canonical(
            note=f"spellings of one molecule were not compared: the data is larger than "
            f"{MAX_SLOW_BYTES >> 20} MB"
        )
    return form


class TextCounts:
    """How often each text occurs, by hash: 16 bytes a distinct text, whatever its length."""

    def __init__(self) -> None:
        self.total = 0
        self._values: Hashes = np.empty(0, np.uint64)
        self._counts: NDArray[np.int64] = np.empty(0, np.int64)
        self._pending: list[Hashes] = []
        self._n_pending = 0

    def add(self, texts: Sequence[str]) -> None:
        """Count these texts."""
        self._pending.append(hashes(texts))
        self._n_pending += len(texts)
        self.total += len(texts)
        if self._n_pending >= max(PENDING, len(self._values) // 2):  # keeps sorting at n log n
            self._merge()

    def _merge(self) -> None:
        new, times = np.unique(np.concatenate(self._pending), return_counts=True)
        self._pending, self._n_pending = [], 0
        index = np.searchsorted(self._values, new)
        known = _contains(self._values, new, index)
        self._counts[index[known]] += times[known]
        self._values = np.insert(self._values, index[~known], new[~known])
        self._counts = np.insert(self._counts, index[~known], times[~known])

    def result(self) -> tuple[Hashes, NDArray[np.int64]]:
        """Return the distinct hashes in ascending order, and how often each occurs."""
        if self._pending:
            self._merge()
        return self._values, self._counts


def _contains(ascending: Hashes, values: Hashes, index: Indices) -> NDArray[np.bool_]:
    """Return which values are in an ascending array; `index` is that of np.searchsorted."""
    known = index < len(ascending)
    known[known] = ascending[index[known]] == values[known]
    return known


@dataclass(frozen=True)
class Leak:
    """The records of a split that also occur in training."""

    records: int  # every copy counted
    distinct: int
    total: int  # records of the split, leaked or not
    examples: tuple[str, ...]


def distinct(batches: Iterable[Sequence[str]]) -> Hashes:
    """Return the distinct hashes of all texts in ascending order, for `overlap`."""
    counts = TextCounts()
    for texts in batches:
        counts.add(texts)
    return counts.result()[0]


def overlap(known: Hashes, other: Iterable[Sequence[str]]) -> Leak:
    """Return the records of `other` whose hash is in `known`, the result of `distinct`.

    Matches are not verified: at 64 bits a false one is less likely than a memory fault.
    """
    records = total = 0
    counts = TextCounts()
    examples: dict[str, None] = {}
    for texts in other:
        total += len(texts)
        values = hashes(texts)
        matches = _contains(known, values, np.searchsorted(known, values))
        leaked = [texts[i] for i in np.flatnonzero(matches).tolist()]
        records += len(leaked)
        counts.add(leaked)
        if len(examples) < EXAMPLES:
            examples |= dict.fromkeys(leaked[:1000])
    return Leak(records, len(counts.result()[0]), total, tuple(examples)[:EXAMPLES])


def leaks(train: Iterable[Sequence[str]], other: Iterable[Sequence[str]]) -> Leak:
    """Return the records of `other` that also occur in `train`, of which 8 bytes each are kept."""
    return overlap(distinct(train), other)


def find(batches: Iterable[Sequence[str]], wanted: Sequence[int]) -> dict[int, str]:
    """Return the first text of every hash in `wanted`, reading no further than needed."""
    targets = np.array(wanted, np.uint64)
    texts_by_hash: dict[int, str] = {}
    for texts in batches:
        values = hashes(texts)
        for i in np.flatnonzero(np.isin(values, targets)).tolist():
            texts_by_hash.setdefault(int(values[i]), texts[i])
        if len(texts_by_hash) == len(targets):
            break
    return texts_by_hash


@dataclass(frozen=True)
class NearDuplicates:
    """The number of records of a split that are near duplicates of training records, how many were
    compared with how many, and examples with what they are near to.
    """

    records: int
    compared: int
    training: int
    examples: tuple[tuple[str, str], ...]


def word_length(texts: Sequence[str]) -> int:
    """Return a k for which k-mers are rarely shared by chance: 8 for a small alphabet, else 5."""
    counts = np.zeros(256, np.int64)
    for text in texts[:1000]:
        raw = np.frombuffer(text[:2000].encode("latin-1", errors="replace"), np.uint8)
        counts += np.bincount(raw, minlength=256)
    largest = np.sort(counts)[::-1]
    return 8 if largest[:SMALL_ALPHABET].sum() >= 0.99 * max(1, counts.sum()) else 5


def near_duplicates(train: Sequence[str], other: Sequence[str]) -> NearDuplicates:
    """Count the records of `other` that are near duplicates of `train`, without exact copies."""
    train, other = _sample(train), _sample(other)
    if not train or not other:
        return NearDuplicates(0, len(other), len(train), ())
    k, exact = word_length(train), set(train)
    train_sets, other_sets = _KmerSets(train, k), _KmerSets(other, k)
    nearest: dict[int, int] = {}
    for train_rows, other_rows in _candidates(train_sets.signatures, other_sets.signatures):
        for i, j in zip(train_rows.tolist(), other_rows.tolist(), strict=True):
            if j not in nearest and _jaccard(train_sets[i], other_sets[j]) >= NEAR:
                nearest[j] = i
    rows = [j for j in sorted(nearest) if other[j] not in exact]
    examples = tuple((other[j], train[nearest[j]]) for j in rows[:EXAMPLES])
    return NearDuplicates(len(rows), len(other), len(train), examples)


def _sample(texts: Sequence[str]) -> list[str]:
    """Return the distinct texts, or an evenly spread part of them that is within the budget."""
    texts = list(dict.fromkeys(texts))
    total = sum(map(len, texts))
    if total <= BUDGET:
        return texts
    count = max(1, int(len(texts) * BUDGET / total))
    return [texts[i] for i in np.linspace(0, len(texts) - 1, count).astype(int).tolist()]


class _KmerSets:
    """The set of k-mers of every text, as sorted hashes, and its MinHash signature."""

    def __init__(self, texts: Sequence[str], k: int) -> None:
        words: list[Words] = []
        sizes: list[Indices] = []
        signatures: list[Words] = []
        for block in _blocks(texts):
            block_words, block_sizes = _kmers(block, k)
            words.append(block_words)
            sizes.append(block_sizes)
            signatures.append(_signatures(block_words, block_sizes))
        self.words = np.concatenate(words)
        self.ends = np.cumsum(np.concatenate(sizes))
        self.signatures = np.concatenate(signatures)  # (records, BANDS · ROWS)

    def __getitem__(self, i: int) -> Words:
        return self.words[self.ends[i - 1] if i else 0 : self.ends[i]]


def _blocks(texts: Sequence[str]) -> Iterator[list[str]]:
    block: list[str] = []
    size = 0
    for text in texts:
        block.append(text)
        size += len(text)
        if size > BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


def _kmers(texts: list[str], k: int) -> tuple[Words, Indices]:
    """Return the distinct k-mers of all texts, one after the other, and how many each text has.

    A text shorter than k is one k-mer.
    """
    lengths = np.array([len(text) for text in texts])
    padded = "".join(text + "\0" * max(0, k - len(text)) for text in texts)
    points = np.frombuffer(padded.encode("utf-32-le", errors="surrogatepass"), "<u4")
    spans = np.maximum(lengths, k)
    values = np.zeros(len(points) - k + 1, np.uint64)
    for i in range(k):
        values = values * GAMMA + points[i : len(points) - k + 1 + i]
    values = (values ^ (values >> np.uint64(29))) * GAMMA
    record = np.repeat(np.arange(len(texts)), spans)[: len(values)]
    offset = np.arange(len(values)) - (np.cumsum(spans) - spans)[record]
    inside = offset <= spans[record] - k  # k-mers that do not cross into the next record
    values, record = values[inside], record[inside]
    order = np.lexsort((values, record))
    values, record = values[order], record[order]
    first = np.ones(len(values), bool)
    first[1:] = (values[1:] != values[:-1]) | (record[1:] != record[:-1])
    return values[first], np.bincount(record[first], minlength=len(texts))


def _signatures(words: Words, sizes: Indices) -> Words:
    """Return (records, BANDS · ROWS): each record's smallest k-mer under as many hash functions."""
    starts = np.cumsum(sizes) - sizes
    signatures = np.empty((len(sizes), BANDS * ROWS), np.uint64)
    functions = np.random.default_rng(0).integers(0, 2**63, (BANDS * ROWS, 2), np.uint64)
    mixed = np.empty_like(words)
    for i, (factor, shift) in enumerate(functions):
        np.multiply(words, factor | np.uint64(1), out=mixed)
        mixed += shift
        signatures[:, i] = np.minimum.reduceat(mixed, starts)
    return signatures


def _candidates(train: Words, other: Words) -> Iterator[tuple[Indices, Indices]]:
    """Yield, band by band, a training record for every other record with the same band.

    Of many, the first and the last are taken, so that the work grows with `other` only.
    """
    for band in range(BANDS):
        columns = slice(band * ROWS, (band + 1) * ROWS)
        train_band, other_band = _fold(train[:, columns]), _fold(other[:, columns])
        order = np.argsort(train_band, kind="stable")
        ascending = train_band[order]
        low = np.searchsorted(ascending, other_band, side="left")
        high = np.searchsorted(ascending, other_band, side="right")
        rows = np.flatnonzero(high > low)
        for candidates in (order[low[rows]], order[high[rows] - 1]):
            similar = (train[candidates] == other[rows]).mean(axis=1) >= CANDIDATE
            yield candidates[similar], rows[similar]


def _fold(rows: Words) -> Words:
    value = np.zeros(len(rows), np.uint64)
    for column in rows.T:
        value = (value ^ column) * GAMMA
        value ^= value >> np.uint64(31)
    return value


def _jaccard(one: Words, two: Words) -> float:
    shared = len(np.intersect1d(one, two, assume_unique=True))
    return shared / (len(one) + len(two) - shared)
