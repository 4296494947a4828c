"""Values and tools that all halls share."""
