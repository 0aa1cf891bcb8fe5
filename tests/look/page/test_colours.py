"""The colours of the style sheet: contrast, and classes that colour-blind readers can tell apart.

Everything here is computed from page.css itself. Two simulations of dichromacy must agree: Machado,
Oliveira & Fernandes 2009 (IEEE TVCG 15:1291) at severity 1, and Viénot, Brettel & Mollon 1999
(Color Research & Application 24:243). Differences are CIEDE2000 (Sharma, Wu & Dalal 2005).
"""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pytest

from regard.look.page.document import asset

LEAST_DIFFERENCE = 12.0  # CIEDE2000 between any two classes
TEXT, GRAPHICS = 4.5, 3.0  # WCAG 2.2, criteria 1.4.3 and 1.4.11
VISION = {
    "normal": np.eye(3),
    "deuteranopia, Machado": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "protanopia, Machado": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia, Viénot": [
        [0.29275, 0.70725, 0.0],
        [0.29275, 0.70725, 0.0],
        [-0.02234, 0.02234, 1.0],
    ],
    "protanopia, Viénot": [
        [0.11238, 0.88762, 0.0],
        [0.11238, 0.88762, 0.0],
        [0.00401, -0.00401, 1.0],
    ],
}
TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
WHITE = np.array([0.95047, 1.0, 1.08883])  # D65


def variables(theme):
    """The colours of a theme by variable: the dark block overrides the light one."""
    light, dark = re.findall(r"\{\s*(--paper:[^}]+)\}", asset("page.css"))
    text = light if theme == "light" else f"{light} {dark}"
    found = re.findall(r"--([a-z-]+): (#[^;]+);", text)
    return {name: [colour.strip() for colour in value.split(",")] for name, value in found}


def linear(colour):
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    xyz = np.clip(rgb, 0, 1) @ TO_XYZ.T / WHITE
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def difference(first, second):
    """CIEDE2000 of two colours in CIELAB."""
    (l1, a1, b1), (l2, a2, b2) = first, second
    mean7 = ((np.hypot(a1, b1) + np.hypot(a2, b2)) / 2) ** 7
    stretch = 1.5 - 0.5 * np.sqrt(mean7 / (mean7 + 25.0**7))
    c1, c2 = np.hypot(stretch * a1, b1), np.hypot(stretch * a2, b2)
    h1 = np.degrees(np.arctan2(b1, stretch * a1)) % 360
    h2 = np.degrees(np.arctan2(b2, stretch * a2)) % 360
    turn = (h2 - h1 + 180) % 360 - 180
    hue = np.radians((h1 + turn / 2) % 360)
    delta = 2 * np.sqrt(c1 * c2) * np.sin(np.radians(turn) / 2)
    chroma, away = (c1 + c2) / 2, ((l1 + l2) / 2 - 50) ** 2
    t = 1 - 0.17 * np.cos(hue - np.radians(30)) + 0.24 * np.cos(2 * hue)
    t += 0.32 * np.cos(3 * hue + np.radians(6)) - 0.2 * np.cos(4 * hue - np.radians(63))
    s_l, s_c = 1 + 0.015 * away / np.sqrt(20 + away), 1 + 0.045 * chroma
    s_h = 1 + 0.015 * chroma * t
    around = np.exp(-(((np.degrees(hue) - 275) / 25) ** 2))
    r = -2 * np.sqrt(chroma**7 / (chroma**7 + 25.0**7)) * np.sin(np.radians(60 * around))
    parts = np.array([(l2 - l1) / s_l, (c2 - c1) / s_c, delta / s_h])
    return float(np.sqrt(parts @ parts + r * parts[1] * parts[2]))


def contrast(first, second):
    high, low = sorted((linear(c) @ TO_XYZ[1] for c in (first, second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


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
    seen = [lab(linear(colour) @ np.array(VISION[vision]).T) for colour in classes]
    pairs = combinations(range(7), 2)
    gaps = {(classes[i], classes[j]): difference(seen[i], seen[j]) for i, j in pairs}
    close = {pair: gap for pair, gap in gaps.items() if gap < LEAST_DIFFERENCE}
    assert close == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_and_graphics_stand_out_from_what_is_below_them(theme):
    colours = variables(theme)
    backgrounds = [colours[name][0] for name in ("paper", "surface")]
    for name in ("ink", "muted", "accent", "warn"):
        least = min(contrast(colours[name][0], background) for background in backgrounds)
        assert least >= TEXT, name
    for colour in (*colours["series"], *colours["mark"]):
        least = min(contrast(colour, background) for background in backgrounds)
        assert least >= GRAPHICS, colour
    assert contrast(colours["ink"][0], colours["accent-soft"][0]) >= TEXT
    assert contrast(colours["paper"][0], colours["accent"][0]) >= TEXT  # of pressed buttons
