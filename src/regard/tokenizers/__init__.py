"""Tokenizers of texts, biological sequences, molecules; featurizers of images, point clouds."""

from __future__ import annotations

from pathlib import Path

from regard.registry import TOKENIZERS
from regard.tokenizers.biology import Kmers, Nucleotides, ProteinBPE, Residues
from regard.tokenizers.patches import Patches
from regard.tokenizers.points import Points
from regard.tokenizers.pretrained import Pretrained
from regard.tokenizers.smiles import Smiles, SmilesBPE
from regard.tokenizers.text import BPE, Bytes, Characters, Words
from regard.tokenizers.tokenizer import Featurizer, Tokenizer, read_document, read_json

__all__ = [
    "BPE",
    "PREPROCESSOR",
    "SOURCE_TOKENIZER",
    "TOKENIZER",
    "Bytes",
    "Characters",
    "Featurizer",
    "Kmers",
    "Nucleotides",
    "Patches",
    "Points",
    "Pretrained",
    "ProteinBPE",
    "Residues",
    "Smiles",
    "SmilesBPE",
    "Tokenizer",
    "Words",
    "load",
    "load_sources",
]

# The files of a run folder.
TOKENIZER, PREPROCESSOR = Tokenizer.file, Featurizer.file
SOURCE_TOKENIZER = "source_tokenizer.json"  # if sources have a vocabulary of their own


def load_sources(run: Path, tokenizer: Tokenizer) -> Tokenizer:
    """Return the tokenizer of a run's sources: their own, a featurizer, or that of the targets."""
    path = run / SOURCE_TOKENIZER
    return load(path) if path.exists() or (run / PREPROCESSOR).exists() else tokenizer


def load(path: str | Path) -> Tokenizer:
    """Return the tokenizer saved at `path`: one of ours, recognised by its structure, or a
    Pretrained one, which needs its tokenizer_config.json in the same folder.

    If there is no such file but a preprocessor_config.json in its folder, return that featurizer.
    A damaged, unknown or huge file is a UserError.
    """
    file, features = Path(path), Path(path).with_name(PREPROCESSOR)
    is_text = file.exists() or not features.exists()
    file = file if is_text else features
    document = (read_document if is_text else read_json)(file)[1]
    for cls in TOKENIZERS.values():
        if cls.reads_text == is_text and cls.recognises(document):
            tokenizer: Tokenizer = cls.from_document(document, str(file))
            return tokenizer
    return Pretrained.from_file(path)
