"""Datasets of the Hugging Face Hub as a user's own data: hf:OWNER/NAME."""
