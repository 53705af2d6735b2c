"""Encode in several processes: on several devices of this machine, or on a Ray cluster."""
