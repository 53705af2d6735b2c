"""How to train: one folder a method."""
