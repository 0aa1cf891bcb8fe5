"""The colours of the style sheet: contrast, and classes that colour-blind readers tell apart."""

from __future__ import annotations

import re

import pytest
from colour_vision import GRAPHICS, TEXT, VISION, contrast, difference, too_close

from regard.look.page.document import asset


def variables(theme):
    """The colours of a theme by variable: the dark block overrides the light one."""
    light, dark = re.findall(r"\{\s*(--paper:[^}]+)\}", asset("page.css"))
    text = light if theme == "light" else f"{light} {dark}"
    found = re.findall(r"--([a-z-]+): (#[^;]+);", text)
    return {name: [colour.strip() for colour in value.split(",")] for name, value in found}


@pytest.mark.parametrize(
    ("first", "second", "expected"),  # pairs 1, 7, 17 and 25 of Sharma, Wu & Dalal 2005
    [
        ((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485), 2.0425),
        ((50.0, 0.0, 0.0), (50.0, -1.0, 2.0), 2.3669),
        ((50.0, 2.5, 0.0), (73.0, 25.0, -18.0), 27.1492),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
    ],
)
def test_the_difference_of_colours_is_that_of_its_paper(first, second, expected):
    assert difference(first, second) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_any_two_classes_can_be_told_apart(theme, vision):
    classes = variables(theme)["series"]
    assert len(classes) == 7
    assert too_close(classes, vision) == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_and_graphics_stand_out_from_what_is_below_them(theme):
    colours = variables(theme)
    backgrounds = [colours[name][0] for name in ("paper", "surface")]
    for name in ("ink", "muted", "accent", "warn"):
        least = min(contrast(colours[name][0], background) for background in backgrounds)
        assert least >= TEXT, name
    for colour in (*colours["series"], *colours["ordered"], *colours["mark"]):
        least = min(contrast(colour, background) for background in backgrounds)
        assert least >= GRAPHICS, colour
    assert contrast(colours["ink"][0], colours["accent-soft"][0]) >= TEXT
    assert contrast(colours["paper"][0], colours["accent"][0]) >= TEXT  # of pressed buttons
