"""Read Kafka messages by Spark's own JSON functions: what `streaming_lsm.decode` is compared with."""
