"""What pages about predictions consist of."""

from __future__ import annotations

TEXTS = ["acca", "bab", "cabb", "abcabc", "b", "ccc", "bacab", "aabbcc", "cb", "abba", "ca", "bca"]


CLASSES = ("high", "low", "middle")


TEXT_PARTS = ["Prediction", "What the prediction rests on", "Attention"]
TEXT_PARTS += ["What each head does here", "Logit lens"]


MANY_PARTS = ["Right and wrong", "Records in the plane", "What each head looks for"]


def of(page, kind):
    return [c for c in page.components if type(c) is kind]


def sections(page):
    return [section.title for section in page.sections]
