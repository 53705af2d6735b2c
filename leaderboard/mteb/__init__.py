"""MTEB's published STS results: unchecked rows, doubts about them, and significance tests from printed scores."""
