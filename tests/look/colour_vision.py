"""How colours look: contrast, differences, and red-green blindness, from their definitions.

Two simulations of dichromacy must agree: Machado, Oliveira & Fernandes 2009 (IEEE TVCG 15:1291) at
severity 1, and Viénot, Brettel & Mollon 1999 (Color Research & Application 24:243). Differences are
CIEDE2000 (Sharma, Wu & Dalal 2005), contrast is that of WCAG 2.2.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

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


def too_close(colours, vision):
    """Pairs of colours that differ by less than classes must, with this vision."""
    seen = [lab(linear(colour) @ np.array(VISION[vision]).T) for colour in colours]
    pairs = combinations(range(len(colours)), 2)
    gaps = {(colours[i], colours[j]): difference(seen[i], seen[j]) for i, j in pairs}
    return {pair: gap for pair, gap in gaps.items() if gap < LEAST_DIFFERENCE}
