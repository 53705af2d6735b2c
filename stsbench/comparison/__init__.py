"""Comparison of two encoders: which scores are comparable, differences with tests and intervals, and their wording."""
