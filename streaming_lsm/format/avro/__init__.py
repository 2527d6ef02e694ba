"""Avro codec on whole columns: many datums at once, and the containers of single records."""
