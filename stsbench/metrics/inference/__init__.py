"""What a test concludes beyond the items at hand: over other draws of the tasks."""
