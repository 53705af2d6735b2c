"""What few need: folders that the core finds through entry points alone, and works without."""
