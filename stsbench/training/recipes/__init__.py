"""Recipes: every choice of a training by name, the methods they belong to, and what each method says of itself."""
