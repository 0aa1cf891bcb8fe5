"""Known motifs located in the sequences of a file."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import UsageError
from regard.interop.motif_formats import NamedMotif, read_motifs
from regard.models.motif_scan import Hits, scan, with_background
from regard.models.motifs import Background, Motif
from regard.motif.sequences import Log, MotifSequences, read_sequences

ENOUGH = 10_000  # letters for a background of order 2; with fewer it has order 0
COLUMNS = (
    *("motif", "name", "sequence", "start", "end", "strand"),
    *("score_bits", "p_value", "q_value", "letters"),
)
BITS = 1.4426950408889634  # of a nat


@dataclass(frozen=True, eq=False)
class ScannedMotif:
    """A motif of a file, with the background of the sequences, and where it occurs."""

    source: NamedMotif
    motif: Motif
    hits: Hits

    @property
    def least_p_value(self) -> float:
        """The p-value of the best possible window."""
        return self.hits.least_p_value


@dataclass(frozen=True, eq=False)
class ScanResult:
    """All motifs of a file, located in the same sequences."""

    motifs: tuple[ScannedMotif, ...]
    sequences: MotifSequences
    p_value: float
    background: str
    seconds: float

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the occurrences by COLUMNS, motif by motif, in the order of the file."""
        names, texts = self.sequences.names, self.sequences.texts
        for scanned in self.motifs:
            hits, width = scanned.hits, scanned.motif.width
            for i, q_value in enumerate(hits.q_values):
                n, at = int(hits.sequences[i]), int(hits.positions[i])
                window = texts[n][at : at + width]
                values: list[Any] = [scanned.source.name, scanned.source.alternate, names[n]]
                values += [at + 1, at + width, "+" if hits.strands[i] > 0 else "-"]
                values += [float(hits.scores[i]) * BITS, float(hits.p_values[i]), float(q_value)]
                values += [read_strand(window, scanned.motif, int(hits.strands[i]))]
                yield dict(zip(COLUMNS, values, strict=True))

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.sequences.file,
            "sequences": len(self.sequences.texts),
            "letters": self.sequences.letters,
            "p_value": self.p_value,
            "background": self.background,
            "seconds": round(self.seconds, 3),
            "motifs": [
                {
                    "motif": one.source.name,
                    "name": one.source.alternate,
                    "width": one.motif.width,
                    "windows": one.hits.tested,
                    "hits": len(one.hits),
                    "expected": one.hits.expected,
                    "least_p_value": one.least_p_value,
                }
                for one in self.motifs
            ],
            "hits": list(self.rows()),
        }


def read_strand(window: str, motif: Motif, strand: int) -> str:
    """Return a window as the motif reads it: on the other strand, its reverse complement."""
    alphabet = motif.alphabet
    digits = alphabet.encode(window)
    if strand < 0:
        digits = alphabet.reverse_complement(digits)
    return "".join(alphabet.letters[i] for i in digits)


def scan_file(
    path: Path,
    motif_file: Path,
    log: Log,
    *,
    p_value: float = 1e-4,
    both_strands: bool = True,
    background: Path | None = None,
) -> ScanResult:
    """Locate the motifs of a file in the sequences of another. The background, under which p-values
    are computed, is fitted to the sequences or to those of another file.
    """
    if not 0 < p_value <= 1:
        raise UsageError(f"--p-value must be above 0 and at most 1, got {p_value}")
    began = time.monotonic()
    motifs = read_motifs(motif_file)
    alphabet = motifs[0].motif.alphabet
    sequences = read_sequences(path, log)
    if sequences.alphabet.letters != alphabet.letters:
        raise UsageError(
            f"{motif_file}: motifs of {alphabet.letters}, but {path} has sequences of "
            f"{sequences.alphabet.letters}"
        )
    both = both_strands and sequences.has_strands
    given = read_sequences(background, log, alphabet) if background else sequences
    order = 2 if sequences.has_strands and given.letters >= ENOUGH else 0
    null = Background.fit(given.digits, alphabet, order=order, both_strands=both)
    scanned = []
    for one in motifs:
        motif = with_background(one.motif, null)
        hits = scan(motif, sequences.digits, p_value=p_value, both_strands=both)
        scanned.append(ScannedMotif(one, motif, hits))
    source = f"order {order}, of {Path(given.file).name}"
    seconds = time.monotonic() - began
    log(
        f"{path}: {len(sequences.texts):,} sequences, {sequences.letters:,} letters, "
        f"{'both strands' if both else 'one strand'}; background of {source}; {len(motifs):,} "
        f"motifs in {seconds:.1f} s"
    )
    short = [one for one in scanned if one.least_p_value > p_value]
    if short:
        log(
            f"{len(short):,} motifs are too short or vague for a p-value of {p_value:g}, such as "
            f"{short[0].source.name}, whose least is {short[0].least_p_value:.2g}: --p-value"
        )
    return ScanResult(tuple(scanned), sequences, p_value, source, seconds)
