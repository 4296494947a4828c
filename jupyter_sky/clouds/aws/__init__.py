"""Driver of Amazon Web Services."""
