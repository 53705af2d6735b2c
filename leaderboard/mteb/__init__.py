"""MTEB's STS results as their authors publish them: rows nobody here checked, what is doubtful, which differ."""
