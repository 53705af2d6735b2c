"""Encoders that need no torch: bags of words, averaged word vectors, stored vectors, any Python callable."""
