"""Trainings and studies of prompts and smaller copies as functions of Python, and the objects that they give."""
