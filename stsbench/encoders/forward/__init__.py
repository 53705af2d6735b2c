"""Forward passes, from token ids to hidden states to vectors: checkpoints, batches, packed and padded passes, poolers."""
