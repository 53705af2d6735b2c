"""Models that compare two texts by more than a vector of each."""
