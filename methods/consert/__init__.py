"""ConSERT (Yan et al. 2021)."""
