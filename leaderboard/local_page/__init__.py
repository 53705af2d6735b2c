"""A local web server for the built page."""
