"""WhitenedCSE (Zhuo et al. 2023)."""
