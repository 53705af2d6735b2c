"""stsbench: sentence embeddings, measured under named protocols."""
