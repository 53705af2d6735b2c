"""Prompt sensitivity: ranks of the board's rows over prompts, and the published study of it."""
