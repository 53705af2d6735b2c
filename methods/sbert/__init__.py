"""Sentence-BERT (Reimers and Gurevych 2019)."""
