"""A run in the formats of other programs: a model card with its index of scores, mteb's result files, records as JSON."""
