"""The board's files: measured entries (reading, checking, adding) and published tables."""
