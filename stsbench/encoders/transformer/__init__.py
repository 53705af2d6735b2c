"""A transformers model as an encoder: from its name to a config, from the config to parts, from parts to vectors."""
