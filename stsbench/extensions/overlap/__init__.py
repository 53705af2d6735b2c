"""Overlap with test sets (leakage): sentences that a data set, or texts that a training file, shares with them."""
