"""Encoders of transformers models: finding a model by its name, its configuration, its parts, and its vectors."""
