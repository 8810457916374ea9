"""Ids, tables and records: frozen dataclasses, no I/O. Knows nobody; everybody may import it."""
