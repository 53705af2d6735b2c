"""The loop that trains every method, with its optimiser, checkpoints, development scores and log."""
