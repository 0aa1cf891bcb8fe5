"""The verb, run in this process."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from regard import cli


@pytest.fixture
def look():
    """Run `regard look ARGUMENTS`."""
    if not cli.app.registered_commands:  # all of them: other tests in this process find them filled
        cli._fill()
    return lambda *arguments: CliRunner().invoke(cli.app, ["look", *map(str, arguments)])
