"""Mirror-BERT (Liu et al. 2021): NT-Xent between a sentence and a slightly corrupted copy of it."""
