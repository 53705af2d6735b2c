"""`mteb:NAME`: a model that the package mteb registers, loaded and called by mteb's own code."""
