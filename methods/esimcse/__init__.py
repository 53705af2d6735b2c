"""ESimCSE (Wu et al. 2022)."""
