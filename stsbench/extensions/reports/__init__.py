"""Reports of runs and comparisons for papers: paragraphs and tables."""
