"""Which protocol reproduces a paper's numbers: `stsbench identify`."""
