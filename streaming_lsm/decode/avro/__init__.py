"""Read messages in Avro, framed as by Confluent's serializers: many of one schema at a time."""
