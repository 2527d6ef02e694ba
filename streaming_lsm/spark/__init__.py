"""Integrate the library with Spark: streaming sink, data source, task engine, query listener, session, Java, jars."""
