"""Fit a post-processing on texts, and write it with its model to one folder."""
