"""Fetch the Avro schemas of Kafka messages by their ids, from a schema registry or a folder."""
