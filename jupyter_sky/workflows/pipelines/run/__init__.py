"""Runs of graphs of tasks: their events and states, decisions and actions, their controller."""
