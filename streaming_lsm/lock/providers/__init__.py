"""Locks that exclude writers of other programs, beside the lease that excludes writers of this package."""
