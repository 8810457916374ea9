"""Where an epoch's rows go."""
