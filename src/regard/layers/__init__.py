"""The parts every model is built from: attention, scores, masks, positions, norms, feed-forward,
recurrence, blocks.
"""
