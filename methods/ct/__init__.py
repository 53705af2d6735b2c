"""Contrastive Tension (Carlsson et al. 2021): two encoders, equal at first, agree on equal sentences and not on others."""
