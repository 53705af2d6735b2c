"""Models that score pairs of texts directly: cross-encoders and late interaction."""
