"""Contrastive Tension (Carlsson et al. 2021): two encoders that start alike and agree on a sentence, not on two."""
