"""Provider of Google Cloud."""
