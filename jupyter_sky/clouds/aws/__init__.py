"""Provider of Amazon Web Services."""
