"""HFiles, version 3: reader, writer, blocks, trailer."""
