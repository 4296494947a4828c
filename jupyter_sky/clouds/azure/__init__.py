"""Driver of Microsoft Azure."""
