"""Plots of runs: geometry of vectors, training curves, losses of tokens."""
