"""What a user derives an operator from, and the types that it declares."""
