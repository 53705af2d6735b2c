"""Results of other tools, as rows that nobody here has checked."""
