"""Truncated and quantised copies of an encoder's vectors: fewer dimensions, each of one byte or one bit."""
