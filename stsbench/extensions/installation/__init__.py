"""What is on this machine and what it allows: what `stsbench doctor` reports. Nothing is downloaded or changed."""
