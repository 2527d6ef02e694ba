"""Writers of data files: native and inline logs, base files, merge handle."""
