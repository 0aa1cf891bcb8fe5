"""Tasks: each brings together defaults, batches, loss, metrics, pipeline and page."""
