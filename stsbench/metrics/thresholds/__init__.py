"""Similarities as decisions: scores over all thresholds, and which threshold or probability to act by."""
