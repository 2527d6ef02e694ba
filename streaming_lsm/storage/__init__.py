"""Store files: one `Storage` protocol and its implementations. Nothing here depends on Hudi's format."""
