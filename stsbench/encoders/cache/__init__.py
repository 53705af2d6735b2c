"""Vectors kept on disk by the encoder's fingerprint, and looked up before anything is computed."""
