"""Tokenizers of text, of DNA, RNA and proteins, of molecules, of images; and other people's."""

from regard.tokenizers.biology import Kmers, Nucleotides, ProteinBPE, Residues
from regard.tokenizers.bpe import BPE
from regard.tokenizers.characters import Bytes, Characters
from regard.tokenizers.loading import KINDS, LEARNED, TEXT_KINDS, learn, load, load_sources
from regard.tokenizers.patches import Patches
from regard.tokenizers.points import Points
from regard.tokenizers.pretrained import Pretrained
from regard.tokenizers.smiles import Smiles, SmilesBPE
from regard.tokenizers.tokenizer import Tokenizer
from regard.tokenizers.words import Words

__all__ = [
    "BPE",
    "KINDS",
    "LEARNED",
    "TEXT_KINDS",
    "Bytes",
    "Characters",
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
    "learn",
    "load",
    "load_sources",
]
