"""The zoo: every row exists, and what is left out has a reason."""

from regard.lab.zoo import ZOO
from regard.registry import MODELS


def test_every_network_has_rows_that_exist_or_a_reason():
    known = set(MODELS.names())
    names = [entry.name for entry in ZOO]
    assert len(names) == len(set(names)) == 28
    for entry in ZOO:
        assert entry.rows or entry.note, entry.name
        assert set(entry.rows) <= known, entry.name
    assert {"lstm", "gru", "bigram", "transformer"} <= {row for e in ZOO for row in e.rows}
