"""Nebius: virtual machines by its SDK."""
