"""Micro-benchmarks as ratios to pyarrow within one run, compared with recorded ones."""
