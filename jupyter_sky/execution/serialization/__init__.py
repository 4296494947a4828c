"""Serialization of values and functions that go to engines."""
