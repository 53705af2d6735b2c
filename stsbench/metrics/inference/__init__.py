"""What a test concludes: power, few items, more seeds, equality, tiers, other tasks, and printed scores without items."""
