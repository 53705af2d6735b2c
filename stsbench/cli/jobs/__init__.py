"""`stsbench run` and `stsbench sweep`: many trainings by one command."""
