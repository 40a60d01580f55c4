"""Target files: what may stand in one, how it is read, and what a wrong one is told."""
