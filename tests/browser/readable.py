"""What every page must pass, as it stands in the browser: contrast in both themes by computed
styles, classes that red-green blind readers can tell apart, nothing wider than a phone.
"""

from __future__ import annotations

from pathlib import Path

from colour_vision import GRAPHICS, TEXT, VISION, too_close

PHONE = 390  # pixels
CONTRAST, LEGENDS = (
    Path(__file__).with_name(name).read_text() for name in ("contrast.js", "legends.js")
)


def faults_of(watched) -> list[str]:
    """Look at the open page in both themes, and on a phone; it stays on the phone."""
    page, found = watched.page, []
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        watched.settle()
        found += [f"{theme}: {fault}" for fault in page.evaluate(CONTRAST, [TEXT, GRAPHICS])]
        series = page.evaluate(
            "getComputedStyle(document.documentElement).getPropertyValue('--series').split(', ')"
        )
        for colours in page.evaluate(LEGENDS):
            classes = [colour for colour in dict.fromkeys(colours) if colour in series]
            for vision in VISION:
                found += [f"{theme}, {vision}: {pair}" for pair in too_close(classes, vision)]
    page.set_viewport_size({"width": PHONE, "height": 800})
    watched.settle()
    width = page.evaluate("document.documentElement.scrollWidth")
    return [*found, *([f"{width} pixels wide on a phone"] if width > PHONE else [])]
