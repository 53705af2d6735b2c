"""Datasets of the Hub as data of one's own: hf:OWNER/NAME."""
