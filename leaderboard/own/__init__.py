"""A board of a user's own models on a user's own data, made by one command."""
