"""What a vocabulary of groups has to do with chemistry, and molecules cut as chemists cut them.

Both need RDKit, the extra `chem`. BRICS (Degen et al. 2008, doi:10.1002/cmdc.200800178) is here and
not among the tokenizers: its fragments say where they were bound but not to which other fragment,
so a molecule, let alone the way its SMILES was written, does not come back from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from regard.errors import UserError, missing_extra
from regard.tokens.groups import Groups


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


def functional_groups(tokenizer: Groups) -> FunctionalGroups:
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
