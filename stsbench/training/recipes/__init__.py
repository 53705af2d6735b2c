"""Training recipes: their settings, how they are loaded and checked, and the methods that they belong to."""
