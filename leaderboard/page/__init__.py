"""What the board is shown as: the page, its picture, tables as text."""
