"""Ctrl-C and SIGTERM: finish the step, save, say how to go on."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self


class Interrupt:
    """While open, the first SIGINT or SIGTERM sets `asked`; a second one acts as it always does.

    Not so where one may come twice, as a launcher passes on what all have had: then it changes
    nothing.
    """

    def __init__(self, *, repeated: bool = False) -> None:
        self.asked = 0  # the signal's number
        self.repeated = repeated
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = number
        if not self.repeated:
            self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def __exit__(self, *_: object) -> None:
        self._restore()
