"""EmbedFilter: post-processing that removes directions of the output embedding from the vectors."""
