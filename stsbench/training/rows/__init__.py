"""Training rows: reading them from files, holding some out, and drawing batches in each stage's order."""
