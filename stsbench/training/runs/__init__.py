"""A run from its recipe to its folder: preparation, stages, the end, several seeds, subsets of the rows."""
