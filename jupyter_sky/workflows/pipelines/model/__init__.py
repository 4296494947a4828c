"""Model of a pipeline: its graph, the identity of tasks, and results that are kept."""
