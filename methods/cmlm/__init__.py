"""Conditional masked language modelling (Yang et al. 2020)."""
