"""The layers of models: attention, masks, positions, norms, convolutions, recurrence, blocks."""
