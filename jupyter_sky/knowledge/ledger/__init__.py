"""Costs, budgets, forecasts and reports."""
