"""Presets: how sentence vectors are read off a causal model without training it (PromptEOL, MetaEOL, Echo, ...)."""
