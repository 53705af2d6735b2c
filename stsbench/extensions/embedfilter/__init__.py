"""EmbedFilter: directions of the output embedding are taken out of the vectors."""
