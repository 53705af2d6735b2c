"""Continued masked-LM pre-training (Devlin et al. 2019)."""
