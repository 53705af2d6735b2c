"""Edits of English sentences by rule: some change the meaning, some keep it."""
