"""What an encoder costs: how fast it computes, in how much memory, how large it and its vectors are."""
