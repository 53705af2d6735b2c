"""SG-OPT (Kim et al. 2021): sentence vectors learn from the layers of the model before training."""
