"""Queue of a bag: jobs, their parameters and their outcomes."""
