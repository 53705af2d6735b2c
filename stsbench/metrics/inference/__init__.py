"""What a test concludes: power, results of few items, practical equality, tiers, and what other tasks would show."""
