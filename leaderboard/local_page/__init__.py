"""The built page at an address of this machine."""
