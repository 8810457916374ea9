"""Spark's own log inside a checkpoint: read, kept, compared with the manifests, and mended."""
