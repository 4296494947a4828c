"""Trials of searches on real machines: each is launched, used, measured, booked and given back."""
