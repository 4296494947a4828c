"""Knowledge: offers, refusals, lifetimes and cost."""
