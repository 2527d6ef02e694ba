"""Read and write HFiles of version 3."""
