"""Torch modules that only training adds to an encoder: heads, learned prompts, generators, the trainable backbone."""
