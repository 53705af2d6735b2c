"""What a user has on the machine: completion in the shell, and `stsbench doctor`."""
