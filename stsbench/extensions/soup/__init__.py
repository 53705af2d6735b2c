"""Model soups: the mean of the weights of models of one architecture."""
