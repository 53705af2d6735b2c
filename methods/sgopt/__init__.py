"""SG-OPT (Kim et al. 2021): BERT's sentence vector learns from its own layers as they were before training."""
