"""Trainings, sweeps and plans as functions of Python, and the objects that they give: a run, trials, jobs."""
