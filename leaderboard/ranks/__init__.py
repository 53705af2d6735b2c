"""Rows that were measured alike, ranked together; published rows stand with them, unranked."""
