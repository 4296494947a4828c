"""Decisions of a bag: size of the fleet, order of jobs, forecast."""
