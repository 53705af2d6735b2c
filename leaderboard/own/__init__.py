"""Comparison of several models on a user's own data, with a board and a page, by one command."""
