"""A paper's table again: what was published, what was measured here, and the command of each row."""
