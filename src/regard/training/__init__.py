"""Fitting: objectives, optimizers, schedules, checkpoints and the loop that joins them."""
