"""Forecasts of several models on one window, in headless Chromium."""

from __future__ import annotations

import numpy as np
import pytest

from regard.look.page import Forecasts, Page

pytestmark = pytest.mark.browser

R, N, P, H, C = 9, 6, 30, 12, 2
MARKUP = "<img src=x onerror=alert(1)>"


def test_the_slider_moves_the_window_and_names_switch_models(tmp_path, browser_page):
    random = np.random.default_rng(0)
    steps = 7 * np.arange(N)[:, None] + np.arange(P + H)
    wave = 100 + 20 * np.sin(2 * np.pi * steps / 24)
    both = np.stack([wave, 5 * wave], -1)  # (N, P + H, C)
    forecasts = both[:, P:] + np.arange(R)[:, None, None, None] + random.normal(size=(R, N, H, C))
    forecasts[3] *= 1e6  # runs away
    truth = both[:, P:].copy()
    truth[2, 4] = np.nan
    page = Page("forecasts")
    page.add(
        Forecasts(
            names=[*(f"model {i}" for i in range(R - 1)), MARKUP],
            targets=["load", "price"],
            forecasts=forecasts,
            history=both[:, :P],
            truth=truth,
            times=np.datetime64("2024-01-30T00", "ns") + steps * np.timedelta64(1, "h"),
            title="Windows",
        )
    )
    path = page.write(tmp_path / "forecasts.html")
    shown = browser_page.open(path)
    assert shown.locator(".undrawn").count() == 0 and shown.locator("main img").count() == 0
    curves, slider = shown.locator(".forecasts svg .curve"), shown.get_by_label("window")
    assert curves.count() == 2 + 4  # history, truth and the first models
    place = shown.locator(".forecasts output")
    assert place.text_content() == "2024-02-01 17:00, window 6 of 6"
    before = curves.nth(0).get_attribute("d")
    slider.press("ArrowLeft")
    assert place.text_content() == "2024-02-01 10:00, window 5 of 6"
    assert slider.get_attribute("aria-valuetext") == place.text_content()
    assert curves.nth(0).get_attribute("d") != before
    slider.press("Home")
    assert "02-01" not in place.text_content() and "window 1 of 6" in place.text_content()
    button = shown.get_by_role("button", name="model 1")
    error = np.abs(forecasts[1, 0, :, 0] - truth[0, :, 0]).mean()
    number = float(button.locator(".number").text_content())
    assert number == pytest.approx(error, rel=0.01)
    button.click()
    assert curves.count() == 5 and button.get_attribute("aria-pressed") == "false"
    shown.get_by_role("button", name="all").click()
    assert curves.count() == 2 + R
    box = shown.locator(".forecasts svg").bounding_box()
    low = shown.evaluate(
        "Math.min(...[...document.querySelectorAll('.forecasts .curve')]"
        ".map(c => c.getBoundingClientRect().top))"
    )
    assert low >= box["y"] - 1  # a forecast that runs away stays inside
    shown.get_by_label("target").select_option("price")
    browser_page.settle()
    assert "price" in shown.locator(".forecasts svg").get_attribute("aria-label")
    shown.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 60)  # left of the names
    assert "observed:" in shown.locator(".tip").text_content()
    shown.get_by_role("button", name="none").click()
    assert curves.count() == 2
    shown.set_viewport_size({"width": 390, "height": 800})
    browser_page.settle()
    assert shown.evaluate("document.documentElement.scrollWidth") <= 390
    assert browser_page.errors == [] and browser_page.requests == [path.as_uri()]
