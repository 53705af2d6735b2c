"""From a file to batches: the rows of each stage, which of them are held out, and the order they come in."""
