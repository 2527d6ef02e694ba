"""The Spark side: sink, data source, session, Java and jars."""
