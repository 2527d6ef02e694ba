"""Where bytes are kept: one `Storage` protocol and its implementations. Knows nothing of Hudi."""
