"""Driver of Google Cloud."""
