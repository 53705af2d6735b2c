"""Commands that set runs or encoders side by side."""
