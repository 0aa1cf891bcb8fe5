"""One studio for the tests of a module."""

from collections.abc import Iterator

import pytest
from studio_server import Studio, make_runs, running


@pytest.fixture(scope="module")
def studio(tmp_path_factory) -> Iterator[Studio]:
    """A studio over small runs, signed in."""
    pytest.importorskip("starlette")
    folder = tmp_path_factory.mktemp("studio")
    with running(make_runs(folder), folder) as studio:
        yield studio
