"""Atoms, bonds and rings of molecules written as SMILES (Weininger 1988, doi:10.1021/ci00057a005).

`Smiles` has one token each for an element of two letters (`Cl` is never `C`), an atom in brackets
with all its attributes (`[nH]`, `[C@@H]`, `[13CH3]`), a ring closure of two digits (`%10`), and any
other sign. An atom in brackets that training has not met is spelled out sign by sign, so every
SMILES comes back and only what no SMILES has (spaces, accents) is unknown.

`SmilesBPE` is byte-pair encoding over atoms, as in Li & Fourches 2021
(doi:10.1021/acs.jcim.0c01127). The trainer of bpe.py gets one stand-in character for each atom, and
what it learns is spelled back. The first merges of the file build atoms of several signs from the
left (`[`, `[n`, `[nH`, `[nH]`); then come the learned ones. The beginnings of atoms are tokens too;
they spell atoms that training has not met. Nothing is merged across the `.` between molecules and
the `>` of reactions.

The chemistry of a vocabulary (functional groups, BRICS fragments) needs RDKit, the extra `chem`.
BRICS (Degen et al. 2008, doi:10.1002/cmdc.200800178) is no tokenizer: its fragments do not say to
which other fragment they were bound, so a molecule does not come back from them.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from itertools import repeat
from typing import Any, Self

import numpy as np

from regard.errors import UserError, missing_extra
from regard.tokenizers.text import PLAIN_MODEL, MergeTokenizer, check_spelling, learn_merges
from regard.tokenizers.tokenizer import (
    SPECIALS,
    Canonical,
    Document,
    Ids,
    NativeTokenizer,
    check_each,
    check_size,
    check_unicode,
    layout,
)

PAIRS = ("Cl", "Br", "@@")  # written outside brackets too, or inside every chiral atom
SIGNS = string.ascii_letters + string.digits + "()[]-=#$:/\\~.>%@+*"  # > is for reactions
BASIC = (*SIGNS, *PAIRS)  # the tokens of every vocabulary
BRACKET, RING = r"\[[^\[\]\s]+\]", r"%[0-9]{2}|%\([0-9]+\)"
PIECE = rf"{BRACKET}|Cl|Br|@@|{RING}|[\s\S]"
LINKS = frozenset("()-=#$:/\\~.")
ORGANIC = frozenset(["Cl", "Br", *"BCNOPSFIbcnops*"])  # atoms that need no brackets
BORDER = r"[.>\s]"
DEFAULT_SIZE = 1024
STAND_IN = 0xF0000  # the first of 65,534 code points for private use, which no text has
MAX_ATOMS = 65_000  # of several signs

find_pieces = re.compile(PIECE).findall  # atoms, ring closures and single signs
_find_units = re.compile(r"Cl|Br|@@|[\s\S]").findall
_split_molecules = re.compile(f"({BORDER})").split


class SmilesTokenizer(NativeTokenizer):
    """A tokenizer of molecules."""

    @cached_property
    def atoms(self) -> Ids:
        """(V,) number of atoms in each token; signs that spell an atom out count like atoms."""
        counts = np.zeros(self.vocab_size, np.int64)
        for id, token in enumerate(self.tokens, start=len(SPECIALS)):
            closed = re.sub(r"\[[^\[\]\s]+$", "[*]", token)  # the beginning of an atom is one
            counts[id] = sum(map(is_atom, find_pieces(closed)))
        return counts

    @classmethod
    def canonical(cls, **options: Any) -> Canonical:
        return canonical_smiles()

    def count_unknown(self, text: str) -> Counter[str]:
        return Counter(sign for sign in text if sign not in SIGNS)

    def problems(self, texts: Sequence[str]) -> list[str]:
        """Return which texts RDKit cannot parse; it parses no reactions, and may be missing."""
        try:
            from rdkit import Chem
        except ImportError:
            return [""] * len(texts)
        with silence():
            valid = [">" in text or Chem.MolFromSmiles(text) is not None for text in texts]
        return ["" if ok else "RDKit cannot parse this SMILES" for ok in valid]


class Smiles(SmilesTokenizer):
    """Every sign, and the longer pieces of the training text."""

    name = "smiles"
    modality = "chemistry"
    # A piece that is in the vocabulary is one token, and any other is spelled sign by sign.
    layout = layout({**PLAIN_MODEL, "ignore_merges": True}, PIECE)

    def __init__(self, longer: Sequence[str]) -> None:
        """`longer` are pieces of several signs; they get the ids after BASIC, in this order."""
        super().__init__((*BASIC, *longer))
        self._ids = {piece: id for id, piece in enumerate(self.tokens, start=len(SPECIALS))}

    @property
    def learned(self) -> Document:
        return {"merges": []}

    @classmethod
    def train(cls, texts: Iterable[str], size: int = 0) -> Self:
        """Take all longer pieces, or the most frequent (ties: by code points)."""
        least = len(SPECIALS) + len(BASIC)
        check_size(cls.name, size, least)
        counts: Counter[str] = Counter()
        for text in check_each(texts):
            counts.update(find_pieces(text))
        longer = _longer_pieces(counts)
        return cls(longer[: size - least] if size else longer)

    def encode_batch(self, texts: Sequence[str]) -> tuple[Ids, Ids]:
        check_unicode(texts)
        ids: list[int | None] = []
        lengths, lookup = [], self._ids.get
        for text in texts:
            pieces = find_pieces(text)
            text_ids = list(map(lookup, pieces))
            if None in text_ids:
                spelled = [sign for p in pieces for sign in ([p] if p in self._ids else p)]
                text_ids = [lookup(sign, self.unk) for sign in spelled]
            ids += text_ids
            lengths.append(len(text_ids))
        return np.array(ids, self.dtype), np.array(lengths, np.int64)

    @classmethod
    def from_tokens(cls, tokens: list[str], model: Document) -> Self:
        longer = tokens[len(BASIC) :]
        odd = [piece for piece in longer if not _is_longer(piece)]
        if tuple(tokens[: len(BASIC)]) != BASIC or odd or model.get("merges") != []:
            raise UserError(
                "model.vocab must be the signs of SMILES, then atoms in brackets and ring closures"
                + (f"; {odd[0]!r} is neither" if odd else "")
            )
        return cls(longer)


def canonical_smiles() -> Canonical:
    """Compare SMILES by the molecule, as RDKit writes it; without RDKit, as they are written."""
    try:
        from rdkit import Chem
    except ImportError:
        return Canonical(
            note="spellings of one molecule were not compared: RDKit is not installed "
            "(pip install 'regard[chem]')"
        )

    @cache  # data is read several times
    def rewrite(text: str) -> str:
        with silence():  # what is no molecule is compared as it is
            molecule = Chem.MolFromSmiles(text)
        return text if molecule is None else str(Chem.MolToSmiles(molecule))

    return Canonical(rewrite, ("the spelling of SMILES",), slow=True)


def written_as_smiles(text: str) -> bool:
    """Return whether a text is nothing but atoms, bonds and rings, with closed branches and paired
    ring numbers.

    Words, bases and residues have letters that are no atom outside brackets.
    """
    pieces, depth = find_pieces(text), 0
    for piece in pieces:
        depth += (piece == "(") - (piece == ")")
        if depth < 0:
            return False
    rings = Counter(piece for piece in pieces if piece.isdigit() or piece[0] == "%")
    known = all(is_atom(piece) or piece in rings or piece in LINKS for piece in pieces)
    return known and not depth and all(times % 2 == 0 for times in rings.values())


def is_molecule(text: str) -> bool:
    """Return whether RDKit can parse a SMILES; without RDKit, and of reactions, True."""
    try:
        from rdkit import Chem
    except ImportError:
        return True
    with silence():
        return ">" in text or Chem.MolFromSmiles(text) is not None


def has_rdkit() -> bool:
    """Return whether RDKit is installed."""
    return find_spec("rdkit") is not None


def parse_smiles(text: str) -> str | None:
    """Return the canonical SMILES of a molecule; None of what RDKit cannot parse."""
    chem = rdkit()
    with silence():
        molecule = chem.MolFromSmiles(text) if text.strip() else None
        return None if molecule is None else str(chem.MolToSmiles(molecule))


def is_atom(piece: str) -> bool:
    return piece in ORGANIC or (len(piece) > 2 and piece[0] == "[")


def _longer_pieces(counts: Counter[str]) -> list[str]:
    """Return atoms in brackets and ring closures of valid signs, the most frequent first."""
    return sorted(filter(_is_longer, counts), key=lambda piece: (-counts[piece], piece))


def _is_longer(piece: str) -> bool:
    """Return whether a piece is an atom in brackets or a ring closure, of valid signs."""
    complete = len(piece) > 1 and piece not in PAIRS and find_pieces(piece) == [piece]
    return complete and set(piece) <= set(SIGNS)


class SmilesBPE(SmilesTokenizer, MergeTokenizer):
    """Groups of one or more atoms."""

    name = "smiles-bpe"
    modality = "chemistry"
    layout = layout(PLAIN_MODEL, BORDER)

    @classmethod
    def from_merges(cls, tokens: Sequence[str], merges: Sequence[Sequence[str]]) -> Self:
        check_spelling(tokens, SIGNS)
        return cls(tokens, merges)

    @classmethod
    def train(cls, texts: Iterable[str], size: int = 0) -> Self:
        """Merge until the vocabulary is full or no pair occurs twice.

        Atoms of several signs, the most frequent first, take at most half of what the single signs
        leave.
        """
        check_size(cls.name, size, len(SPECIALS) + len(BASIC))
        size = size or DEFAULT_SIZE
        molecules: Counter[str] = Counter()
        for text in check_each(texts):
            molecules.update(part for part in _split_molecules(text) if part)
        counts: Counter[str] = Counter()
        for molecule, n in molecules.items():
            for piece, times in Counter(find_pieces(molecule)).items():
                counts[piece] += n * times
        tokens, merges, atoms = _merge_atoms(_longer_pieces(counts), size)
        stand_ins = {atom: chr(STAND_IN + i) for i, atom in enumerate([*BASIC, *atoms])}
        atom_of = {stand_in: atom for atom, stand_in in stand_ins.items()}
        trainer_size = size - len(tokens) + len(stand_ins)  # stand-ins replace the atoms
        _, learned = learn_merges(
            _write_stand_ins(molecules, stand_ins), layout(PLAIN_MODEL), trainer_size, [*atom_of]
        )
        known = set(map(tuple, merges))
        for pair in learned:
            a, b = ("".join(map(atom_of.__getitem__, part)) for part in pair)
            tokens.setdefault(a + b)
            if (a, b) not in known:
                merges.append([a, b])
        return cls.from_merges(list(tokens), merges)


def _merge_atoms(
    longer: Sequence[str], size: int
) -> tuple[dict[str, None], list[list[str]], list[str]]:
    """Return tokens (in order), the merges that make atoms of several signs, and the atoms that
    fit.
    """
    tokens = dict.fromkeys(BASIC)
    merges = [[*pair] for pair in PAIRS]
    atoms: list[str] = []
    limit = (size - len(SPECIALS) + len(tokens)) // 2
    for atom in longer:
        units = _find_units(atom)
        steps = [["".join(units[:i]), units[i]] for i in range(1, len(units))]
        new = [step for step in steps if "".join(step) not in tokens]
        if len(tokens) + len(new) > limit or len(atoms) == MAX_ATOMS:
            continue
        merges += new
        tokens |= dict.fromkeys("".join(step) for step in new)
        atoms.append(atom)
    return tokens, merges, atoms


def _write_stand_ins(molecules: Mapping[str, int], stand_ins: Mapping[str, str]) -> Iterator[str]:
    """Yield the molecules in stand-ins, cut at atoms that have none."""
    for molecule, n in molecules.items():
        written = "".join(stand_ins.get(piece, " ") for piece in find_pieces(molecule))
        for part in written.split(" "):
            yield from repeat(part, n)


@dataclass(frozen=True)
class FunctionalGroups:
    """How many tokens have several atoms (`merged`), how many of those are molecules by themselves,
    without an open ring or branch (`complete`), and which functional groups these have.
    """

    merged: int
    complete: int
    names: dict[str, tuple[str, ...]]  # token → patterns, for the tokens that have any

    @property
    def share(self) -> float:
        """The share of merged tokens with a functional group; 0 if none is merged."""
        return len(self.names) / max(1, self.merged)


def functional_groups(tokenizer: SmilesBPE) -> FunctionalGroups:
    """Match the merged tokens against the functional groups of rdkit.Chem.Fragments."""
    chem = rdkit()
    from rdkit.Chem import Fragments

    merged = [tokenizer.text(id) for id, n in enumerate(tokenizer.atoms.tolist()) if n > 1]
    with silence():
        parsed = {token: chem.MolFromSmiles(token) for token in merged}
    molecules = {token: molecule for token, molecule in parsed.items() if molecule is not None}
    groups = {
        token: tuple(name for name, count in Fragments.fns if count(molecule))
        for token, molecule in molecules.items()
    }
    return FunctionalGroups(len(merged), len(molecules), {t: g for t, g in groups.items() if g})


def fragments(smiles: str) -> tuple[str, ...]:
    """Return the BRICS fragments of a molecule as canonical SMILES, in the order of its atoms;
    `[3*]` is where a bond was broken, with the kind of its environment.
    """
    chem = rdkit()
    from rdkit.Chem import BRICS

    with silence():
        molecule = chem.MolFromSmiles(smiles)
    if molecule is None:
        raise UserError(f"{smiles!r} is not a molecule that RDKit can read")
    broken = BRICS.BreakBRICSBonds(molecule)
    return tuple(map(chem.MolToSmiles, chem.GetMolFrags(broken, asMols=True)))


def rdkit() -> Any:
    """Return RDKit's Chem; if it is not installed, a UserError says how to install it."""
    try:
        from rdkit import Chem
    except ImportError:
        raise missing_extra("rdkit", "chem") from None
    return Chem


@contextmanager
def silence() -> Iterator[None]:
    """Suppress RDKit's messages about invalid SMILES: here that is a result, not an error."""
    from rdkit import rdBase

    with rdBase.BlockLogs():
        yield
