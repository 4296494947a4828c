"""Provider of Microsoft Azure."""
