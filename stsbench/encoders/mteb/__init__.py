"""Both ways between stsbench and the package mteb: its registered models as encoders, and encoders as its models."""
