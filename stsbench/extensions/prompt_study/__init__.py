"""Prompt sensitivity: how much an encoder's scores depend on the prompt, measured over a list of prompts."""
