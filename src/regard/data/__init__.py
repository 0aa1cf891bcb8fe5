"""From files to batches: readers, splits, inspection, order, shards, batching."""
