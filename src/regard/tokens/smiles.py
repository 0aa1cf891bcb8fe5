"""Atoms, bonds and rings of molecules written as SMILES (Weininger 1988, doi:10.1021/ci00057a005).

One token each: an element of two letters (`Cl` is never `C`), an atom in brackets with all that is
said of it (`[nH]`, `[C@@H]`, `[13CH3]`), a ring closure of two digits (`%10`), and any other sign.
An atom in brackets that training has not met is spelt out sign by sign, so every SMILES comes back
whole and only what no SMILES has (spaces, accents) is unknown.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from regard.errors import UserError
from regard.tokens.bytes_ import BYTE_LEVEL_MODEL
from regard.tokens.canonical import Canonical, molecules
from regard.tokens.tokenizer import (
    SPECIALS,
    Document,
    Ids,
    OwnTokenizer,
    Tokenizer,
    check_size,
    check_unicode,
    filled,
    layout,
    learned_tokens,
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
