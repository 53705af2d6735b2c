"""What a test concludes: over another draw of tasks, and from printed scores whose items nobody kept."""
