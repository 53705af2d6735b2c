"""A method of two stages, for tests of what the core makes of stages; registered by test_stages.py."""
