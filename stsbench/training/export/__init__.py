"""A trained encoder as a folder that transformers and sentence-transformers load, with its card."""
