"""From a language model to sequences: greedy, sampled or searched, within given constraints."""

from regard.decoding.beam import Beam, Node, Trace
from regard.decoding.constraints import ForbiddenTransitions
from regard.decoding.engine import DecodeSession, Generated, Strategy, generate
from regard.decoding.mbr import MinimumBayesRisk
from regard.decoding.sampling import Greedy, Sample

__all__ = [
    "Beam",
    "DecodeSession",
    "ForbiddenTransitions",
    "Generated",
    "Greedy",
    "MinimumBayesRisk",
    "Node",
    "Sample",
    "Strategy",
    "Trace",
    "generate",
]
