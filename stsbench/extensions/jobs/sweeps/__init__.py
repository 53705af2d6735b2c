"""Sweeps: a method's settings, searched by development score; each trial is some trainings."""
