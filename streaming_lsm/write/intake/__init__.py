"""Check incoming events: control columns, tombstones, dead letters."""
