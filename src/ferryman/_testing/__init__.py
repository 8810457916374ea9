"""What tests need inside the library: the steps at which a fault can be asked for."""
