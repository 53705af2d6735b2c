"""What follows from a test: how many more seeds would settle it."""
