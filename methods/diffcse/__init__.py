"""DiffCSE (Chuang et al. 2022)."""
