"""IS-BERT (Zhang et al. 2020): sentence vectors with high mutual information with their own tokens."""
