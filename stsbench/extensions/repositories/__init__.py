"""Data sets that their authors publish in repositories on GitHub, fetched at a commit and compared with their digests."""
