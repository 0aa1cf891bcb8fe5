"""Which records are for training, which for choosing, which for the last judgement.

A record's side depends on its text alone, through a hash, so that copies of one record never stand
on both sides, and adding data moves no old record. Running text is cut: its beginning trains.

Hashes are the first 64 bits of BLAKE2b (RFC 7693). Two different texts out of n share one with a
chance of about n²/2⁶⁵: one in three thousand for a hundred million records.

Which fold each record of a finished list falls in, as pure functions of keys, labels and groups.

Where `splits` decides for one record at a time, these see all of them, and can therefore keep the
shares of every label, whole groups together, and every fold as large as the next. Records with the
same key (the hash of their input) always share a fold; nothing depends on the order of the records
but the scaffold split, which breaks ties by it.

The sides of labelled records where more than their hash decides: a column, labels, groups,
scaffolds, folds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from regard.data.readers import Chunk
from regard.data.targets import MANY
from regard.errors import UsageError, UserError
from regard.recipe import DataRecipe
from regard.tokenizers.smiles import rdkit, silence

if TYPE_CHECKING:
    from regard.data.labelled import LabelledFiles

EXAMPLES = 5  # leaked records shown; all of them are counted
PENDING = 1 << 20  # hashes collected before they are sorted in with the others

Hashes = NDArray[np.uint64]


def hashes(texts: Sequence[str], seed: int = 0) -> Hashes:
    """One 64-bit hash a text, the same on every machine and in every process."""
    salt = seed.to_bytes(16, "little", signed=True)
    digests = [
        blake2b(text.encode(errors="surrogatepass"), digest_size=8, salt=salt).digest()
        for text in texts
    ]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64, copy=False)


def _fractions(values: Hashes) -> NDArray[np.float64]:
    return (values >> np.uint64(11)).astype(np.float64) / 2.0**53  # exact, and never 1


def bucket(text: str, seed: int = 0) -> float:
    """A number from 0 up to but not 1 that depends on the text (and seed) alone, evenly spread."""
    return float(_fractions(hashes([text], seed))[0])


def assign(
    texts: Sequence[str], valid_fraction: float, test_fraction: float, seed: int = 0
) -> NDArray[np.uint8]:
    """The side of every text: 0 train, 1 valid, 2 test. Equal texts get equal sides."""
    return sides_of(hashes(texts, seed), valid_fraction, test_fraction)


def sides_of(values: Hashes, valid_fraction: float, test_fraction: float) -> NDArray[np.uint8]:
    """What `assign` says of the texts with these hashes."""
    _check(valid_fraction, test_fraction)
    place = _fractions(values)
    sides = (place < test_fraction + valid_fraction).astype(np.uint8)
    sides[place < test_fraction] = 2
    return sides


def cut_points(total: int, valid_fraction: float, test_fraction: float) -> tuple[int, int]:
    """Where running text is cut: [0, a) trains, [a, b) is valid, [b, total) is test."""
    _check(valid_fraction, test_fraction)
    b = total - round(total * test_fraction)
    return max(0, b - round(total * valid_fraction)), b


def _check(valid_fraction: float, test_fraction: float) -> None:
    for name, value in (("valid_fraction", valid_fraction), ("test_fraction", test_fraction)):
        if not 0 <= value < 1:
            raise UsageError(f"data.{name} must be at least 0 and below 1, got {value}")
    if valid_fraction + test_fraction >= 1:
        raise UsageError(
            "data.valid_fraction and data.test_fraction must leave something to train on, got "
            f"{valid_fraction} and {test_fraction}"
        )


class SplitCounts:
    """How often each text came, by hash: 16 bytes a distinct text, whatever its length."""

    def __init__(self) -> None:
        self.total = 0
        self._values: Hashes = np.empty(0, np.uint64)
        self._counts: NDArray[np.int64] = np.empty(0, np.int64)
        self._pending: list[Hashes] = []
        self._waiting = 0

    def add(self, texts: Sequence[str]) -> None:
        """Count these texts."""
        self._pending.append(hashes(texts))
        self._waiting += len(texts)
        self.total += len(texts)
        if self._waiting >= max(PENDING, len(self._values) // 2):  # so that sorting stays n log n
            self._merge()

    def _merge(self) -> None:
        new, times = np.unique(np.concatenate(self._pending), return_counts=True)
        self._pending, self._waiting = [], 0
        place = np.searchsorted(self._values, new)
        known = np.zeros(len(new), np.bool_)
        inside = place < len(self._values)
        known[inside] = self._values[place[inside]] == new[inside]
        self._counts[place[known]] += times[known]
        fresh = ~known
        self._values = np.insert(self._values, place[fresh], new[fresh])
        self._counts = np.insert(self._counts, place[fresh], times[fresh])

    def result(self) -> tuple[Hashes, NDArray[np.int64]]:
        """The distinct hashes in rising order, and how often each came."""
        if self._pending:
            self._merge()
        return self._values, self._counts


@dataclass(frozen=True)
class Leak:
    """What of another set was already seen in training."""

    records: int  # of the other set, every copy counted
    distinct: int
    total: int  # records of the other set, leaked or not
    examples: tuple[str, ...]


def distinct(batches: Iterable[Sequence[str]]) -> Hashes:
    """The hashes of all texts, each once, in rising order: what `overlap` looks up."""
    counts = SplitCounts()
    for texts in batches:
        counts.add(texts)
    return counts.result()[0]


def overlap(known: Hashes, other: Iterable[Sequence[str]]) -> Leak:
    """The records of `other` whose hash is in `known`, a rising array from `distinct`."""
    records = total = 0
    found = SplitCounts()
    examples: dict[str, None] = {}
    for texts in other:
        total += len(texts)
        values = hashes(texts)
        place = np.searchsorted(known, values)
        inside = place < len(known)
        inside[inside] = known[place[inside]] == values[inside]
        leaked = [texts[i] for i in np.flatnonzero(inside).tolist()]
        records += len(leaked)
        found.add(leaked)
        if len(examples) < EXAMPLES:
            examples |= dict.fromkeys(leaked[:1000])
    return Leak(records, len(found.result()[0]), total, tuple(examples)[:EXAMPLES])


def leaks(train: Iterable[Sequence[str]], other: Iterable[Sequence[str]]) -> Leak:
    """How many records of `other` also occur in `train`, exactly as they are, counted exactly.

    Only hashes of `train` are kept, 8 bytes each once sorted. A match is not looked at again: at 64
    bits a false one is less likely than a memory fault.
    """
    return overlap(distinct(train), other)


def find(batches: Iterable[Sequence[str]], wanted: Sequence[int]) -> dict[int, str]:
    """The first text of every hash in `wanted`, all different; stops reading once all are found."""
    left = np.array(wanted, np.uint64)
    found: dict[int, str] = {}
    for texts in batches:
        values = hashes(texts)
        for i in np.flatnonzero(np.isin(values, left)).tolist():
            found.setdefault(int(values[i]), texts[i])
        if len(found) == len(left):
            break
    return found


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


class SplitPlan:
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

    def sides(self, source: LabelledFiles, chunk: Chunk, start: int) -> Sides | None:
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

    def _decide(self, source: LabelledFiles) -> Sides:
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

    def _dealt(self, source: LabelledFiles) -> Sides:
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

    def count_folds(self, source: LabelledFiles) -> int:
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
