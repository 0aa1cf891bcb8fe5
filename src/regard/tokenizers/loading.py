"""The kinds of tokenizers by name: learning one as a recipe says, opening a tokenizer.json."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from regard.errors import UsageError
from regard.recipe import TokensRecipe
from regard.run import SOURCE_TOKENIZER
from regard.tokenizers.biology import Kmers, Nucleotides, ProteinBPE, Residues
from regard.tokenizers.bpe import BPE
from regard.tokenizers.characters import Bytes, Characters
from regard.tokenizers.patches import Patches
from regard.tokenizers.points import Points
from regard.tokenizers.pretrained import Pretrained
from regard.tokenizers.smiles import Smiles, SmilesBPE
from regard.tokenizers.tokenizer import OwnTokenizer, Tokenizer, read_document, read_json
from regard.tokenizers.words import Words

TEXT_KINDS: dict[str, type[OwnTokenizer]] = {k.kind: k for k in (Characters, Bytes, Words, BPE)}
BIOLOGY: tuple[type[OwnTokenizer], ...] = (Nucleotides, Kmers, Residues, ProteinBPE)
CHEMISTRY: tuple[type[OwnTokenizer], ...] = (Smiles, SmilesBPE)
# The kinds that can be trained, by their name in recipes.
KINDS: dict[str, type[OwnTokenizer]] = TEXT_KINDS | {k.kind: k for k in (*BIOLOGY, *CHEMISTRY)}
LEARNED: dict[str, type[Tokenizer]] = KINDS | {k.kind: k for k in (Patches, Points)}  # no text


def learn(recipe: TokensRecipe, texts: Iterable[Any]) -> Tokenizer:
    """The tokenizer that a recipe asks for, learned from these texts, pictures or clouds."""
    if recipe.kind not in LEARNED:
        raise UsageError(
            f"tokens.kind = {recipe.kind!r} cannot be learned: it is that of train.start, a run"
        )
    train: Any = LEARNED[recipe.kind].train  # options differ from kind to kind; the recipe knows
    tokenizer: Tokenizer = train(texts, recipe.size, **recipe.options)
    return tokenizer


def load_sources(run: Path, tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer of a run's sources: one of their own, that of pictures, or that of targets."""
    own = run / SOURCE_TOKENIZER
    return load(own) if own.exists() or (run / Patches.file).exists() else tokenizer


def load(path: str | Path) -> Tokenizer:
    """The tokenizer saved at `path`: one of ours, known by its structure, or else a Pretrained one.

    A foreign file needs its tokenizer_config.json beside it. Where there is none, but a
    preprocessor_config.json, tokens are patches of pictures, or points, as it says. A damaged,
    unknown or huge file is a UserError.
    """
    beside = Path(path).with_name(Patches.file)
    if not Path(path).exists() and beside.exists():
        points = Points.recognises(read_json(beside)[1])
        return Points.load(beside) if points else Patches.load(beside)
    document = read_document(path)[1]
    for kind in KINDS.values():
        if kind.recognises(document):
            return kind.from_document(document, str(path))
    return Pretrained.from_file(path)
