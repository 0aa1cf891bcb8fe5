"""Byte-pair encoding over the atoms of SMILES: frequent groups of atoms become tokens.

Li & Fourches 2021 (doi:10.1021/acs.jcim.0c01127) merge pairs of SMILES tokens as Sennrich et al.
merge pairs of characters. The learner is that of bpe.py: it is given one stand-in character for an
atom, and what it learns is spelt back. So that tokenizer.json needs no stand-ins, its first merges
put atoms of several signs together from the left (`[`, `[n`, `[nH`, `[nH]`); only then come the
learned ones. The beginnings of atoms are tokens too; they spell atoms that training has not met.
Nothing is merged across the `.` between molecules and the `>` of reactions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from typing import Any, ClassVar, Self

from regard.tokens.bpe import Merges, learn
from regard.tokens.canonical import Canonical, molecules
from regard.tokens.motifs import PLAIN_MODEL, check_spelling
from regard.tokens.smiles import (
    PAIRS,
    SIGNS,
    atom_counts,
    find,
    longer_pieces,
    unknown_signs,
    unparsed,
)
from regard.tokens.tokenizer import SPECIALS, Document, Ids, check_size, check_unicode, layout

DEFAULT_SIZE = 1024
STAND_IN = 0xF0000  # the first of 65,534 code points for private use, of which no text is made
MOST_ATOMS = 65_000  # of several signs, and the signs besides
BORDER = r"[.>\s]"
PLAIN = layout(model=PLAIN_MODEL, pre_tokenizer=None, decoder={"type": "Fuse"})

_unit = re.compile(r"Cl|Br|@@|[\s\S]").findall
_split = re.compile(f"({BORDER})").split


class Groups(Merges):
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
