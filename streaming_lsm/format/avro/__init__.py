"""Encode and decode Avro: many datums at once as Arrow columns, and object containers of one record."""
