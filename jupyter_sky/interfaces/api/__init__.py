"""Verbs as Python calls: clusters, offers, plans and settings."""
