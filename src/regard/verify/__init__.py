"""Exactness, proved on a run folder itself: every way to a number must give the same number."""

from regard.verify.checks import Check, VerifyReport, verify

__all__ = ["Check", "VerifyReport", "verify"]
