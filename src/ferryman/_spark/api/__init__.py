"""What a user has in hand: a ferry, streams, jobs."""
