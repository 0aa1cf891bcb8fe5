"""Tokenizers of text, of DNA, RNA and proteins, of molecules, of images; and other people's."""

from regard.tokens.bpe import BPE
from regard.tokens.bytes_ import Bytes
from regard.tokens.characters import Characters
from regard.tokens.groups import Groups
from regard.tokens.kmers import Kmers
from regard.tokens.loading import KINDS, LEARNED, TEXT_KINDS, learn, load, load_sources
from regard.tokens.motifs import Motifs
from regard.tokens.nucleotides import Nucleotides
from regard.tokens.patches import Patches
from regard.tokens.points import Points
from regard.tokens.pretrained import Pretrained
from regard.tokens.residues import Residues
from regard.tokens.smiles import Smiles
from regard.tokens.tokenizer import Tokenizer
from regard.tokens.words import Words

__all__ = [
    "BPE",
    "KINDS",
    "LEARNED",
    "TEXT_KINDS",
    "Bytes",
    "Characters",
    "Groups",
    "Kmers",
    "Motifs",
    "Nucleotides",
    "Patches",
    "Points",
    "Pretrained",
    "Residues",
    "Smiles",
    "Tokenizer",
    "Words",
    "learn",
    "load",
    "load_sources",
]
