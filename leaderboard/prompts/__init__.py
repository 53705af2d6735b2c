"""Rows behind other prompts, too: ranks over prompts, and the published study of prompt sensitivity."""
