"""Exactness, proved on a run folder itself: every way to a number must give the same number."""

from regard.verify.checks import verify
from regard.verify.report import Check, Report

__all__ = ["Check", "Report", "verify"]
