"""Database of clusters, runs and costs, shared by the processes of a user."""
