"""PromptBERT (Jiang et al. 2022)."""
