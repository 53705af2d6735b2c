"""Measured entries: admitted, added, loaded."""
