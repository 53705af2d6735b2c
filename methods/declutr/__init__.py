"""DeCLUTR (Giorgi et al. 2021)."""
