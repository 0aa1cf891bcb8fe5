"""The screen *Runs*: the table of `regard runs`, curves, and the card of `regard show`."""

from __future__ import annotations

from typing import Any

from regard.studio.screens import Screen, action, register_screen


@register_screen("runs", title="Runs")
class Runs(Screen):
    """The runs of the folder."""

    @action
    def table(self) -> dict[str, Any]:
        """Return the entries of `regard runs --json`, with names."""
        entries = self.opened.folders()
        rows = [
            one.to_json() | {"name": self.opened.name(one.path), "result": one.result}
            for one in entries
        ]
        return {"runs": rows}
