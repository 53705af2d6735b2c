"""What can be concluded from so many items: power, the noise of the field, results of few items."""
