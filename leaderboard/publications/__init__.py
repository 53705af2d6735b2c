"""What papers and READMEs report."""
