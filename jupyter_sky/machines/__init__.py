"""Machines: launch, engines, storage, packages and services."""
