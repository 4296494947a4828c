"""Clusters of a notebook: launch, records, budget and end."""
