"""Smaller copies of an encoder's vectors: fewer numbers, each of one byte or one bit."""
