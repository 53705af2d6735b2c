"""SNCSE (Wang et al. 2022)."""
