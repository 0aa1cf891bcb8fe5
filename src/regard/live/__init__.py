"""Live pages: one HTML file with a small model inside that runs in the page, without requests.

A page is made of parts: the model, its tokenizer, and the screen of its pipeline. The `LivePart` of
an object names the program that does the same in JavaScript (a file in `assets/`), and holds what
that program needs. Packages register their own with `register_live`.
"""

from regard.live.parts import LivePart, live_part
from regard.registry import register_live

__all__ = ["LivePart", "live_part", "register_live"]
