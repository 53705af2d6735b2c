"""Prompts around a text: templates, their tokens, prompts trained with a model, and the modules trained for them."""
