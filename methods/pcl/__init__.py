"""PCL (Wu et al. 2022)."""
