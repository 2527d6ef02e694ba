"""Events on their way in: control columns, checks, tombstones, dead letters."""
