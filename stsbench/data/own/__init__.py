"""A user's own data: files and folders of any usual layout, read as sets."""
