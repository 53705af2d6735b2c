"""Data sets: their classes, their readers, and the catalog of known sets."""

FROM_MTEB = "mteb:"  # prefix of the ids of sets that mteb loads from the Hub
