"""Kubernetes: pods by its official client."""
