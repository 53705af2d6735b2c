"""What a set is, and what the catalog knows of each."""

FROM_MTEB = "mteb:"  # begins the id of a set that mteb loads from the Hub
