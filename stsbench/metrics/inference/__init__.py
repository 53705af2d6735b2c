"""What a test concludes: power, results of few items, practical equality, and which of many scores stand in one tier."""
