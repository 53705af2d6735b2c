"""IS-BERT (Zhang et al. 2020): a sentence vector that shares information with its own tokens, and not with others'."""
