"""SARCSE (Liu et al. 2024)."""
