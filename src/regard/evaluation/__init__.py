"""Figures with intervals: what a model costs in bits on data it has not seen."""
