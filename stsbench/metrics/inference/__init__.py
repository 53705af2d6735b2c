"""What a test concludes: whether scores are practically equal, and which of many stand together in a tier."""
