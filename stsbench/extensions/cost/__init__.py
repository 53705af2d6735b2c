"""The cost of an encoder: speed, latency, memory, parameters and bytes per vector."""
