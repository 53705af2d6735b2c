"""Pages, tables and pictures of docs/ that are made from the board."""
