"""Encoders against each other: what may be compared, how sure the differences are, what that says."""
