"""Entries before they are on the board: where they would rank, and how to publish them."""
