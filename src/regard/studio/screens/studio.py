"""What the shell around the screens asks for: the menu, and the runs to choose from."""

from __future__ import annotations

from typing import Any

from regard.studio.screens import Screen, action, register_screen


@register_screen("studio", title="")  # no entry in the menu
class Shell(Screen):
    """The menu and the list of runs."""

    @action
    def start(self) -> dict[str, Any]:
        """Return the screens of the menu and the folder that is open."""
        from regard import __version__
        from regard.studio.server import menu

        return {"screens": menu(), "folder": str(self.opened.shown), "version": __version__}

    @action
    def runs(self) -> dict[str, Any]:
        """Return the names of the runs, with what each is."""
        return {
            "runs": [
                {
                    "name": self.opened.name(one.path),
                    "model": one.model,
                    "task": one.task,
                    "result": one.result,
                    "state": one.state,
                }
                for one in self.opened.folders()
            ]
        }
