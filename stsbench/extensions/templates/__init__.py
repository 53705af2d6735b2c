"""Templates for a user's own method, protocol or kind of encoder: working code with a test."""
