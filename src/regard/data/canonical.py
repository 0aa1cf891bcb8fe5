"""The form in which the records of a recipe are compared: see tokens.canonical."""

from __future__ import annotations

from pathlib import Path

from regard.recipe import DataRecipe, TokensRecipe
from regard.tokens.canonical import PLAIN, Canonical, molecules

LARGE = 1 << 25  # bytes up to which texts are compared in a slow way, which takes minutes


def canonical_form(
    data: DataRecipe, tokens: TokensRecipe | None, format: str, size: int, start: str = ""
) -> Canonical:
    """How records of `format`, `size` bytes in all, are compared.

    `tokens` decide what a model reads alike; a pretrained tokenizer is that of the run `start`.
    Views of a record that data.augment names are the same record.
    """
    found = PLAIN
    if tokens is not None:
        found = _as_read(tokens, start)
    if format == "smi" or data.augment == "smiles":
        found = molecules()
    if data.augment == "strands":
        from regard.tokens.nucleotides import either_strand

        found = found.then(either_strand, "strand")
    if found.slow and size > LARGE:
        return Canonical(
            note=f"spellings of one molecule were not compared: the data is larger than "
            f"{LARGE >> 20} MB"
        )
    return found


def _as_read(tokens: TokensRecipe, start: str) -> Canonical:
    """What a tokenizer makes of texts before it cuts them."""
    from regard.run import TOKENIZER
    from regard.tokens import LEARNED, Pretrained

    if tokens.kind in LEARNED:
        return LEARNED[tokens.kind].canonical(**tokens.options)
    path = Path(start) / TOKENIZER
    if tokens.kind == "pretrained" and start and path.exists():
        return Canonical(Pretrained.from_file(path).normalized, ("what its normalizer changes",))
    return PLAIN
