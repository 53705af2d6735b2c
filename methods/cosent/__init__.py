"""CoSENT (Su 2022)."""
