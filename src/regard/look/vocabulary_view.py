"""The vocabulary of a tokenizer whose tokens mean something by themselves.

Of `smiles-bpe` these are groups of atoms (deck 002: "single atom vs functional group"): the same
molecules are read atom by atom with `--tokenizer smiles` and group by group with
`--tokenizer smiles-bpe`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import singledispatch
from importlib.util import find_spec

from regard.look.molecules import draw_structure
from regard.look.page import Facts, Page, RecordList, ShownRecord, Table
from regard.tokenizers.smiles import SmilesBPE, functional_groups, parse_smiles

MOST_GROUPS = 60  # listed
MOST_DRAWN = 24
# Of RDKit's descriptions, such as "Number of ether oxygens (including phenoxy)", the first words.
COUNTED, DETAIL = "Number of ", re.compile(r",| \(| -| excluding | of at least | with no ")
# RDKit calls these amines, but they match amides, nitriles and pyridines as well.
NITROGENS = {"fr_NH2": "NH₂", "fr_NH1": "NH", "fr_NH0": "N without hydrogen"}

Names = Mapping[str, Sequence[str]]  # functional groups by token


@singledispatch
def add_vocabulary(tokenizer: object, page: Page, text: str = "") -> None:
    """Add the vocabulary of a tokenizer; of most there is nothing to say."""


@add_vocabulary.register
def add_groups(tokenizer: SmilesBPE, page: Page, text: str = "") -> None:
    """List and draw the groups of atoms, those with most functional groups first."""
    atoms = tokenizer.atoms.tolist()
    merged = [i for i, n in enumerate(atoms) if n > 1]
    names = group_names(tokenizer)
    page.section(
        "Groups of atoms",
        "A token is an atom or a group of atoms that often occurs as a whole. Atom by atom the "
        "same molecules are read with --tokenizer smiles. Functional groups are RDKit's.",
    )
    facts: list[tuple[str, object]] = [
        ("tokens of one atom", sum(n == 1 for n in atoms)),
        ("groups of several", len(merged)),
        ("of these with a functional group", len(names)),
    ]
    if text:
        ids = [int(i) for i in tokenizer.encode(text)]
        facts.append(("this molecule", " · ".join(tokenizer.text(i) for i in ids)))
    page.add(Facts(facts))
    merged.sort(key=lambda i: (-len(names.get(tokenizer.text(i), ())), -atoms[i], i))
    groups = {tokenizer.text(i): atoms[i] for i in merged}
    drawings, table = draw_groups(groups, names), list_groups(groups, names)
    page.add(*([drawings] if drawings.records else []), table)


def draw_groups(groups: Mapping[str, int], names: Names) -> RecordList:
    """Draw the groups, with their number of atoms, that RDKit reads as molecules, each molecule
    once; without RDKit none.
    """
    records: list[ShownRecord] = []
    complete = parsed_groups(groups)
    for token in complete.values():
        structure = draw_structure(token) if len(records) < MOST_DRAWN else None
        if structure is not None:
            paths = [list(path) for path in structure.paths]
            picture = {"text": token, "mono": True, "paths": paths, "size": structure.size}
            named = ", ".join(names.get(token, ())) or "no functional group"
            size = f"{groups[token]} atoms"
            records.append(
                ShownRecord(picture=picture, prediction=size, truth=named, is_error=False)
            )
    note = (
        f"{len(records)} of {len(complete)} groups that are molecules by themselves, in which "
        f"RDKit fills the open bonds with hydrogen. The other {len(groups) - len(complete)} have "
        "an open ring or branch, or are another spelling of one of these."
    )
    return RecordList(records=records, note=note, title="The groups, drawn")


def parsed_groups(groups: Mapping[str, int]) -> dict[str, str]:
    """Return the first group for each molecule, by its canonical SMILES; without RDKit none."""
    first: dict[str, str] = {}
    if find_spec("rdkit") is not None:
        for token in groups:
            molecule = parse_smiles(token)
            if molecule is not None:
                first.setdefault(molecule, token)
    return first


def list_groups(groups: Mapping[str, int], names: Names) -> Table:
    rows = [[token, n, ", ".join(names.get(token, ())) or "–"] for token, n in groups.items()]
    part = f", {MOST_GROUPS} of {len(rows):,}" if len(rows) > MOST_GROUPS else ""
    title = f"The vocabulary of groups, those with most functional groups first{part}"
    columns = ["group", "atoms", "functional groups"]
    return Table(columns, rows[:MOST_GROUPS], ["left", "right", "left"], title=title)


def group_names(tokenizer: SmilesBPE) -> Names:
    """Return the functional groups of each token that has some, in words; none without RDKit."""
    if find_spec("rdkit") is None:
        return {}
    from rdkit.Chem import Fragments

    words = {name: describe(function.__doc__ or name) for name, function in Fragments.fns}
    words |= NITROGENS
    groups = functional_groups(tokenizer).names
    return {
        token: list(dict.fromkeys(words[name] for name in names)) for token, names in groups.items()
    }


def describe(text: str) -> str:
    """Return what RDKit counts in few words: "Number of Primary amines" are primary amines."""
    words = DETAIL.split(text.removeprefix(COUNTED))[0].strip()
    return words[0].lower() + words[1:] if words[1:2].islower() else words
