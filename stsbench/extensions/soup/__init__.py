"""Models of one architecture as one model: the mean of their weights."""
