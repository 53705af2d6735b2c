"""Training methods as losses of sentence-transformers' trainer."""
