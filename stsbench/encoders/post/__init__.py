"""Post-processing: maps of sentence vectors that are fitted on vectors without labels (whitening, ...)."""
