"""Submissions to the board: where new entries would rank, and how to publish them."""
