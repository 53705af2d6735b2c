"""Trainings as functions of Python, and the objects that they give: a run."""
