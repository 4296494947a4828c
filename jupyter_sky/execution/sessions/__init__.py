"""Session of a notebook, and what concerns the whole account."""
