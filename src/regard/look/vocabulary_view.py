"""The vocabulary of a tokenizer whose tokens mean something by themselves.

Of `smiles-bpe` these are groups of atoms (deck 002: "single atom vs functional group"): the same
molecules are read atom by atom with `--tokenizer smiles` and group by group with
`--tokenizer smiles-bpe`.
"""

from __future__ import annotations

from functools import singledispatch

from regard.look.page import Facts, Page, Table
from regard.tokenizers.smiles import SmilesBPE, functional_groups

MOST_GROUPS = 60  # listed
PREFIX = "fr_"  # of RDKit's names of functional groups


@singledispatch
def add_vocabulary(tokenizer: object, page: Page, text: str = "") -> None:
    """Add the vocabulary of a tokenizer; of most there is nothing to say."""


@add_vocabulary.register
def add_groups(tokenizer: SmilesBPE, page: Page, text: str = "") -> None:
    """List the groups of atoms, the largest first, with the functional groups that they have."""
    atoms = tokenizer.atoms.tolist()
    merged = [i for i, n in enumerate(atoms) if n > 1]
    single = sum(n == 1 for n in atoms)
    names = group_names(tokenizer)
    page.section(
        "Groups of atoms",
        "A token is an atom or a group of atoms that often occurs as a whole. Atom by atom the "
        "same molecules are read with --tokenizer smiles. Functional groups are RDKit's.",
    )
    facts: list[tuple[str, object]] = [
        ("tokens of one atom", single),
        ("groups of several", len(merged)),
        ("of these with a functional group", len(names)),
    ]
    if text:
        ids = [int(i) for i in tokenizer.encode(text)]
        facts.append(("this molecule", " · ".join(tokenizer.text(i) for i in ids)))
    page.add(Facts(facts))
    rows: list[list[object]] = []
    for i in sorted(merged, key=lambda i: (-len(names.get(tokenizer.text(i), ())), -atoms[i], i)):
        token = tokenizer.text(i)
        rows.append([token, atoms[i], ", ".join(names.get(token, ())) or "–"])
    part = f", {MOST_GROUPS} of {len(rows):,}" if len(rows) > MOST_GROUPS else ""
    columns = ["group", "atoms", "functional groups"]
    title = f"The vocabulary of groups, those with most functional groups first{part}"
    page.add(Table(columns, rows[:MOST_GROUPS], ["left", "right", "left"], title=title))


def group_names(tokenizer: SmilesBPE) -> dict[str, tuple[str, ...]]:
    """Return the functional groups of each token that has some, in words; none without RDKit."""
    from importlib.util import find_spec

    if find_spec("rdkit") is None:
        return {}
    groups = functional_groups(tokenizer).names
    return {
        token: tuple(name.removeprefix(PREFIX).replace("_", " ") for name in names)
        for token, names in groups.items()
    }
