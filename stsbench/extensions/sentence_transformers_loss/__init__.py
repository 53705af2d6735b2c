"""Methods as losses of sentence-transformers' trainer."""
