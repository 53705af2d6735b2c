"""A run from its recipe to its folder: preparation, stages, the end and its export, several seeds, subsets of the rows."""
