"""What follows from runs: is it enough data, are these enough seeds, which encoder to take, which similarity is a match."""
