"""Transfers by part, checked and resumable."""
