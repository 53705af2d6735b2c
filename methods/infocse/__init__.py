"""InfoCSE (Wu et al. 2022)."""
