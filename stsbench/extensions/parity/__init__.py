"""Do two encoders give the same vectors, and if not, why: what explains B is tried on A, whose parts are known."""
