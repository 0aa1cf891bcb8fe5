"""Motifs in a file of sequences: found without labels and measured against other models, or known
ones located.

`search` is `regard motif FILE`, `scan_file` is `regard motif FILE --scan MOTIFS`.
"""

from regard.motif.discovery import MotifResult, SearchOptions, search
from regard.motif.scanning import ScanResult, scan_file
from regard.motif.sequences import MotifSequences, read_sequences

__all__ = [
    "MotifResult",
    "MotifSequences",
    "ScanResult",
    "SearchOptions",
    "read_sequences",
    "scan_file",
    "search",
]
