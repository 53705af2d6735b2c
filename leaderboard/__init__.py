"""What was found: published and measured results."""
