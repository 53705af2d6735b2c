"""One encoder behind every prompt of a list: how much scores depend on the prompt."""
