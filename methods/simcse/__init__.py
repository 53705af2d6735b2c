"""SimCSE (Gao, Yao and Chen 2021)."""
