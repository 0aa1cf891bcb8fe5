"""From a language model to sequences: greedy, sampled or searched, within given constraints."""

from regard.decoding.beam import Beam, Node, Trace
from regard.decoding.constraints import Forbidden
from regard.decoding.engine import Generated, Strategy, Workspace, generate
from regard.decoding.mbr import Consensus
from regard.decoding.sampling import Greedy, Sample

__all__ = [
    "Beam",
    "Consensus",
    "Forbidden",
    "Generated",
    "Greedy",
    "Node",
    "Sample",
    "Strategy",
    "Trace",
    "Workspace",
    "generate",
]
