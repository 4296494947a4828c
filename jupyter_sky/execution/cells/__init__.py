"""Cells: inputs, placement, sending, monitoring, results and limits."""
