"""Operators: how a user declares one, and how its instances run on the rows of an epoch.

No Spark and no disk here: rows and state come as Arrow tables, output and new state leave as such.
"""
