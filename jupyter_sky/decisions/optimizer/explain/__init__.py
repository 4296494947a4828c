"""Explanations of plans: reasons, alternatives, infeasibility and the timeline."""
