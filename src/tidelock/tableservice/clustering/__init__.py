"""Clustering: file groups are replaced by fewer, or better sorted, ones."""
