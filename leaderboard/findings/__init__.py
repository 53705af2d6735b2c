"""What pages of the repository show of its board."""
