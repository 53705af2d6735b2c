"""The presentation of the board: its web page, and its tables as text."""
