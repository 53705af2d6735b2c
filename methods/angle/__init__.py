"""AnglE (Li and Li 2024)."""
