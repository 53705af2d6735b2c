"""The same encoder in several processes, one a device."""
