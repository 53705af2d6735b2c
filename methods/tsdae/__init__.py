"""TSDAE (Wang, Reimers and Gurevych 2021)."""
