"""Database of clusters, runs and costs of a user, and files that readers see whole."""
