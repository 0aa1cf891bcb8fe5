"""Atoms, bonds and rings of molecules written as SMILES (Weininger 1988, doi:10.1021/ci00057a005).

One token each: an element of two letters (`Cl` is never `C`), an atom in brackets with all that is
said of it (`[nH]`, `[C@@H]`, `[13CH3]`), a ring closure of two digits (`%10`), and any other sign.
An atom in brackets that training has not met is spelt out sign by sign, so every SMILES comes back
whole and only what no SMILES has (spaces, accents) is unknown.

Byte-pair encoding over the atoms of SMILES: frequent groups of atoms become tokens.

Li & Fourches 2021 (doi:10.1021/acs.jcim.0c01127) merge pairs of SMILES tokens as Sennrich et al.
merge pairs of characters. The learner is that of bpe.py: it is given one stand-in character for an
atom, and what it learns is spelt back. So that tokenizer.json needs no stand-ins, its first merges
put atoms of several signs together from the left (`[`, `[n`, `[nH`, `[nH]`); only then come the
learned ones. The beginnings of atoms are tokens too; they spell atoms that training has not met.
Nothing is merged across the `.` between molecules and the `>` of reactions.

What a vocabulary of groups has to do with chemistry, and molecules cut as chemists cut them.

Both need RDKit, the extra `chem`. BRICS (Degen et al. 2008, doi:10.1002/cmdc.200800178) is here and
not among the tokenizers: its fragments say where they were bound but not to which other fragment,
so a molecule, let alone the way its SMILES was written, does not come back from them.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any, ClassVar, Self

import numpy as np

from regard.errors import UserError, missing_extra
from regard.tokenizers.biology import PLAIN_MODEL, check_spelling
from regard.tokenizers.bpe import Merges, learn
from regard.tokenizers.characters import BYTE_LEVEL_MODEL
from regard.tokenizers.tokenizer import (
    SPECIALS,
    Canonical,
    Document,
    Ids,
    OwnTokenizer,
    Tokenizer,
    check_size,
    check_unicode,
    filled,
    layout,
    learned_tokens,
    molecules,
)

PAIRS = ("Cl", "Br", "@@")  # written outside brackets too, or inside every chiral atom
SIGNS = string.ascii_letters + string.digits + "()[]-=#$:/\\~.>%@+*"  # > is for reactions
BRACKET, RING = r"\[[^\[\]\s]+\]", r"%[0-9]{2}|%\([0-9]+\)"
PIECE = rf"{BRACKET}|Cl|Br|@@|{RING}|[\s\S]"
LINKS = frozenset("()-=#$:/\\~.")
ORGANIC = frozenset(["Cl", "Br", *"BCNOPSFIbcnops*"])  # atoms that need no brackets
# A piece that is in the vocabulary is one token, and any other is spelt, sign by sign.
SPELLING_MODEL: Document = {**BYTE_LEVEL_MODEL, "unk_token": "<unk>", "ignore_merges": True}

_find = re.compile(PIECE).findall


class Smiles(OwnTokenizer):
    """Every sign, and the longer pieces that training has met."""

    kind: ClassVar[str] = "smiles"
    layout: ClassVar[Document] = layout(
        model=SPELLING_MODEL,
        pre_tokenizer={
            "type": "Split",
            "pattern": {"Regex": PIECE},
            "behavior": "Isolated",
            "invert": False,
        },
        decoder={"type": "Fuse"},
    )

    def __init__(self, longer: Sequence[str]) -> None:
        """`longer` are pieces of several signs; they get the ids after PAIRS, in this order."""
        self.pieces = (*SIGNS, *PAIRS, *longer)
        super().__init__([b"", b"", b"", b"<unk>", *(piece.encode() for piece in self.pieces)])
        self._ids = {piece: id for id, piece in enumerate(self.pieces, start=len(SPECIALS))}
        self.atoms = atom_counts(self)

    @classmethod
    def canonical(cls, **options: Any) -> Canonical:
        """See Tokenizer: the molecule counts, not how it is written."""
        return molecules()

    @classmethod
    def train(cls, texts: Iterable[str], size: int = 0) -> Self:
        """Keep all longer pieces, or the most frequent (ties: by code points); see Tokenizer."""
        known = (*SIGNS, *PAIRS)
        least = len(SPECIALS) + len(known)
        check_size(cls.kind, size, least)
        counts: Counter[str] = Counter()
        for number, text in enumerate(texts):
            check_unicode([text], number)
            counts.update(find(text))
        longer = longer_pieces(counts)
        return cls(longer[: size - least] if size else longer)

    def encode_batch(self, texts: Sequence[str]) -> tuple[Ids, Ids]:
        """See Tokenizer."""
        check_unicode(texts)
        ids, lengths, known = [], [], self._ids.get
        for text in texts:
            found = list(map(known, find(text)))
            if None in found:
                found = [known(sign, self.unk) for sign in self._spelt(text)]
            ids += found
            lengths.append(len(found))
        return np.array(ids, self.dtype), np.array(lengths, np.int64)

    def _spelt(self, text: str) -> list[str]:
        """The pieces of a text, those that are not in the vocabulary sign by sign."""
        return [s for p in find(text) for s in ([p] if p in self._ids else p)]

    def unknown(self, text: str) -> Counter[str]:
        """See Tokenizer."""
        return unknown_signs(text)

    def problems(self, texts: Sequence[str]) -> list[str]:
        """See Tokenizer: molecules, where RDKit is installed."""
        return unparsed(texts)

    def document(self) -> Document:
        """See Tokenizer."""
        return filled(self.layout, self.pieces, merges=[])

    @classmethod
    def from_document(cls, document: Document, name: str) -> Self:
        """See Tokenizer."""
        pieces, known = learned_tokens(document, name), [*SIGNS, *PAIRS]
        longer = pieces[len(known) :]
        odd = [piece for piece in longer if not _is_longer(piece)]
        if pieces[: len(known)] != known or odd or document["model"].get("merges") != []:
            raise UserError(
                f"{name}: damaged: model.vocab must be the signs of SMILES, then atoms in brackets "
                "and ring closures" + (f"; {odd[0]!r} is neither" if odd else "")
            )
        return cls(longer)


def find(text: str) -> list[str]:
    """The pieces of a text: atoms, ring closures and single signs, nothing left out."""
    return _find(text)


def written_as_smiles(text: str) -> bool:
    """Is a text nothing but atoms, bonds and rings, its branches closed and its rings in pairs?

    Words, bases and residues have letters that are no atom outside brackets.
    """
    pieces, depth = find(text), 0
    for piece in pieces:
        depth += (piece == "(") - (piece == ")")
        if depth < 0:
            return False
    rings = Counter(piece for piece in pieces if piece.isdigit() or piece[0] == "%")
    known = all(is_atom(piece) or piece in rings or piece in LINKS for piece in pieces)
    return known and not depth and all(times % 2 == 0 for times in rings.values())


def unknown_signs(text: str) -> Counter[str]:
    """What no SMILES has, and how often."""
    return Counter(sign for sign in text if sign not in SIGNS)


def unparsed(texts: Sequence[str]) -> list[str]:
    """What is wrong with each SMILES; nothing is known without RDKit, the extra `chem`, and of
    reactions, which are no molecules.
    """
    try:
        from rdkit import Chem, rdBase
    except ImportError:
        return [""] * len(texts)
    with rdBase.BlockLogs():
        sound = (">" in text or Chem.MolFromSmiles(text) is not None for text in texts)
        return ["" if one else "RDKit cannot parse this SMILES" for one in sound]


def longer_pieces(counts: Counter[str]) -> list[str]:
    """Atoms in brackets and ring closures of valid signs, the most frequent first."""
    return sorted(filter(_is_longer, counts), key=lambda piece: (-counts[piece], piece))


def _is_longer(piece: str) -> bool:
    """Is this an atom in brackets or a ring closure, not met in every vocabulary?"""
    whole = len(piece) > 1 and piece not in PAIRS and find(piece) == [piece]
    return whole and set(piece) <= set(SIGNS)


def atom_counts(tokenizer: Tokenizer) -> Ids:
    """(V,) how many atoms a token has. Signs that spell an atom out are not told from atoms."""
    counts = np.zeros(tokenizer.vocab_size, np.int64)
    for id, raw in enumerate(tokenizer.raw):
        if id not in tokenizer.names:
            whole = re.sub(r"\[[^\[\]\s]+$", "[*]", raw.decode())  # the beginning of an atom is one
            counts[id] = sum(map(is_atom, find(whole)))
    return counts


def is_atom(piece: str) -> bool:
    """Is this piece an atom, in brackets or without?"""
    return piece in ORGANIC or (len(piece) > 2 and piece[0] == "[")


DEFAULT_SIZE = 1024
STAND_IN = 0xF0000  # the first of 65,534 code points for private use, of which no text is made
MOST_ATOMS = 65_000  # of several signs, and the signs besides
BORDER = r"[.>\s]"
PLAIN = layout(model=PLAIN_MODEL, pre_tokenizer=None, decoder={"type": "Fuse"})

_unit = re.compile(r"Cl|Br|@@|[\s\S]").findall
_split = re.compile(f"({BORDER})").split


class SmilesBPE(Merges):
    """Groups of atoms, from one up."""

    kind: ClassVar[str] = "groups"
    layout: ClassVar[Document] = layout(
        model=PLAIN_MODEL,
        pre_tokenizer={
            "type": "Split",
            "pattern": {"Regex": BORDER},
            "behavior": "Isolated",
            "invert": False,
        },
        decoder={"type": "Fuse"},
    )

    @classmethod
    def of(cls, tokens: Sequence[str], merges: Sequence[Sequence[str]]) -> Self:
        """See Merges."""
        check_spelling(tokens, SIGNS)
        return cls(tokens, merges, [token.encode() for token in tokens])

    @cached_property
    def atoms(self) -> Ids:
        """(V,) how many atoms a token has: see atom_counts."""
        return atom_counts(self)

    def unknown(self, text: str) -> Counter[str]:
        """See Tokenizer."""
        return unknown_signs(text)

    def problems(self, texts: Sequence[str]) -> list[str]:
        """See Tokenizer: molecules, where RDKit is installed."""
        return unparsed(texts)

    @classmethod
    def canonical(cls, **options: Any) -> Canonical:
        """See Tokenizer: the molecule counts, not how it is written."""
        return molecules()

    @classmethod
    def train(cls, texts: Iterable[str], size: int = 0) -> Self:
        """Merge until the vocabulary is full or no pair occurs twice; see Tokenizer.

        Atoms of several signs, the most frequent first, take at most half of what the single signs
        leave.
        """
        check_size(cls.kind, size, len(SPECIALS) + len(SIGNS) + len(PAIRS))
        size = size or DEFAULT_SIZE
        molecules: Counter[str] = Counter()
        for number, text in enumerate(texts):
            check_unicode([text], number)
            molecules.update(part for part in _split(text) if part)
        counts: Counter[str] = Counter()
        for molecule, n in molecules.items():
            for piece, found in Counter(find(molecule)).items():
                counts[piece] += n * found
        tokens, merges, atoms = _atoms(longer_pieces(counts), size)
        stand_ins = {atom: chr(STAND_IN + i) for i, atom in enumerate([*SIGNS, *PAIRS, *atoms])}
        spelt = {stand_in: atom for atom, stand_in in stand_ins.items()}
        room = size - len(tokens) + len(stand_ins)  # the stand-ins take the place of the atoms
        _, learned = learn(_written(molecules, stand_ins), PLAIN, room, [*spelt])
        known = set(map(tuple, merges))
        for pair in learned:
            a, b = ("".join(map(spelt.__getitem__, part)) for part in pair)
            tokens.setdefault(a + b)
            if (a, b) not in known:
                merges.append([a, b])
        return cls.of(list(tokens), merges)


def _atoms(longer: Sequence[str], size: int) -> tuple[dict[str, None], list[list[str]], list[str]]:
    """Tokens (in order), the merges that make atoms of several signs, and those that fit."""
    tokens = dict.fromkeys(SIGNS)
    merges = [[*pair] for pair in PAIRS]
    tokens |= dict.fromkeys(PAIRS)
    atoms: list[str] = []
    most = (size - len(SPECIALS) + len(tokens)) // 2
    for atom in longer:
        units = _unit(atom)
        steps = [["".join(units[:i]), units[i]] for i in range(1, len(units))]
        new = [step for step in steps if "".join(step) not in tokens]
        if len(tokens) + len(new) > most or len(atoms) == MOST_ATOMS:
            continue
        merges += new
        tokens |= dict.fromkeys("".join(step) for step in new)
        atoms.append(atom)
    return tokens, merges, atoms


def _written(molecules: Mapping[str, int], stand_ins: Mapping[str, str]) -> Iterator[str]:
    """The molecules in stand-ins, cut at atoms that have none."""
    for molecule, n in molecules.items():
        written = "".join(stand_ins.get(piece, " ") for piece in find(molecule))
        for part in written.split(" "):
            yield from repeat(part, n)


@dataclass(frozen=True)
class FunctionalGroups:
    """How many tokens of a vocabulary are of several atoms (`merged`), how many of those are
    molecules by themselves (`whole`: no open ring or branch), and `names`, which functional groups
    the whole ones hold.
    """

    merged: int
    whole: int
    names: dict[str, tuple[str, ...]]  # token → patterns, for the tokens that hold any

    @property
    def share(self) -> float:
        """Of the merged tokens, those that hold a functional group; 0 where none is merged."""
        return len(self.names) / max(1, self.merged)


def functional_groups(tokenizer: SmilesBPE) -> FunctionalGroups:
    """Match the merged tokens against the functional groups of rdkit.Chem.Fragments."""
    chem = rdkit()
    from rdkit.Chem import Fragments

    merged = [tokenizer.text(id) for id, n in enumerate(tokenizer.atoms.tolist()) if n > 1]
    with silence():
        read = {token: chem.MolFromSmiles(token) for token in merged}
    whole = {token: molecule for token, molecule in read.items() if molecule is not None}
    found = {
        token: tuple(name for name, count in Fragments.fns if count(molecule))
        for token, molecule in whole.items()
    }
    return FunctionalGroups(len(merged), len(whole), {t: n for t, n in found.items() if n})


def fragments(smiles: str) -> tuple[str, ...]:
    """The BRICS fragments of a molecule as canonical SMILES, in the order of its atoms; `[3*]` is
    where a bond was broken, with the kind of its environment.
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
    """RDKit's Chem; where it is not installed, a UserError that says how to."""
    try:
        from rdkit import Chem
    except ImportError:
        raise missing_extra("rdkit", "chem") from None
    return Chem


@contextmanager
def silence() -> Iterator[None]:
    """RDKit writes what it cannot read to stderr; here that is an answer, not an error."""
    from rdkit import rdBase

    with rdBase.BlockLogs():
        yield
