"""What a test concludes: power, few items, practical equality, tiers, other tasks, and printed scores without items."""
