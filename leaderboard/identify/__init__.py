"""Search for the protocol that reproduces a paper's numbers: `stsbench identify`."""
