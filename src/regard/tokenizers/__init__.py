"""Tokenizers of texts, biological sequences, molecules; featurizers of images, point clouds."""

from regard.tokenizers.biology import Kmers, Nucleotides, ProteinBPE, Residues
from regard.tokenizers.bpe import BPE
from regard.tokenizers.characters import Bytes, Characters
from regard.tokenizers.featurizer import Featurizer
from regard.tokenizers.loading import (
    PREPROCESSOR,
    SOURCE_TOKENIZER,
    TOKENIZER,
    load,
    load_sources,
)
from regard.tokenizers.patches import Patches
from regard.tokenizers.points import Points
from regard.tokenizers.pretrained import Pretrained
from regard.tokenizers.smiles import Smiles, SmilesBPE
from regard.tokenizers.tokenizer import Tokenizer
from regard.tokenizers.words import Words

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
