"""Import of other tools' results, as unchecked rows of the board."""
