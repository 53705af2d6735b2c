"""Reproduction of papers' tables: published figures, figures measured here, and the command for each row."""
