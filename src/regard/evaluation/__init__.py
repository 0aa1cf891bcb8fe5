"""Metrics with 95% intervals by the bootstrap, and models compared in pairs."""
