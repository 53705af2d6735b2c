"""Mirror-BERT (Liu et al. 2021): a sentence and a slightly corrupted copy of it, under NT-Xent."""
