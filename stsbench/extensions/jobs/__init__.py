"""Plans: which trainings and evaluations there are, what depends on what, which are done, and who runs them."""
