"""Find what Spark's Java process needs on this machine: a Java, its trust store, jars."""
