"""Evaluation protocols, one file each, and YAML presets with the settings of papers."""
