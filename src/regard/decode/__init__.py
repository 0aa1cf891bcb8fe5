"""From a language model to sequences: greedy, sampled or searched, within given constraints."""

from regard.decode.beam import Beam, Node, Trace
from regard.decode.consensus import Consensus
from regard.decode.constraints import Forbidden
from regard.decode.engine import Generated, Strategy, generate
from regard.decode.greedy import Greedy
from regard.decode.sampling import Sample
from regard.decode.workspace import Workspace

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
