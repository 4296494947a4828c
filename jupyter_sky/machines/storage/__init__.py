"""Object stores and local folders behind one protocol, and transfers between them."""
