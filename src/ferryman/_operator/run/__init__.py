"""How an instance of an operator runs: row by row, vectorised, or as declared aggregates."""
