"""The screen *Step*: every stage of one position of an input, with its numbers."""

from __future__ import annotations

from typing import Any

from regard.errors import UserError
from regard.look.steps import trace_steps
from regard.look.steps.page import StepThrough
from regard.studio.screens import Screen, action, figure, register_screen


@register_screen("step", title="Step")
class StepScreen(Screen):
    """A step-through of a run's model."""

    @action
    def trace(
        self, run: str, text: str = "", target: str = "", position: int = 0, record: int = 0
    ) -> dict[str, Any]:
        """Return the stages of a position, from 1, 0 being the last one; without a text, of a
        held-out record, numbered from 0.
        """
        pipeline = self.opened.pipeline(run)
        reads_text = pipeline.source_tokenizer.reads_text
        if text and not reads_text:  # it would be a path, of any file
            raise UserError(
                f"{run} reads files: here its held-out records are shown, and any other by `regard "
                "look RUN FILE --steps`"
            )
        trace = trace_steps(pipeline, text, target, position, record)
        return {
            "figure": figure(StepThrough(trace, movable=True)),
            "positions": len(trace.tokens),
            "position": trace.position + 1,
            "notes": trace.notes,
            "reads_text": reads_text,
            "reads_pairs": pipeline.reads_source and reads_text,
        }
