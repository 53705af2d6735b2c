"""Training runs: preparing and training one, exporting its encoder, its folder, and runs over several seeds or subsets."""
