"""The kinds of state that an operator can declare, and what `process` sees of them."""
