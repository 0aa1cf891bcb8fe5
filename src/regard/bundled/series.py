"""A synthetic hourly load: two seasons, temperature, holidays, noise and a few gaps."""

from __future__ import annotations

from pathlib import Path

import numpy as np

HOURS = 24 * 7 * 40


def save_series(path: Path, hours: int = HOURS, seed: int = 0) -> Path:
    """Write a table of times, load and temperature; the same seed gives the same table."""
    random = np.random.default_rng(seed)
    steps = np.arange(hours)
    day, week = 2 * np.pi * steps / 24, 2 * np.pi * steps / 168
    weather = np.zeros(hours)  # an autoregression of a few days
    for t in range(1, hours):
        weather[t] = 0.98 * weather[t - 1] + random.normal()
    temperature = 12 + 6 * np.sin(day - 2) + weather
    load = 60 + 12 * np.sin(day - 1) + 5 * np.sin(2 * day) + 6 * np.sin(week)
    load += 0.8 * np.maximum(0, 15 - temperature) + 2 * random.normal(size=hours)
    times = np.datetime64("2023-01-01T00", "h") + steps.astype("m8[h]")
    rows = [f"{t},{a:.2f},{b:.2f}" for t, a, b in zip(times, load, temperature, strict=True)]
    gaps = random.random(hours) < 0.002
    rows = [row for row, gap in zip(rows, gaps, strict=True) if not gap]
    path.write_text("\n".join(["time,load,temperature", *rows]) + "\n")
    return path
