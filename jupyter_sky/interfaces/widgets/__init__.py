"""Views of runs, plans, offers, logs and costs in notebooks and terminals.

Every view has an HTML form that needs neither scripts nor style sheets and a plain-text form, so
that saved notebooks, headless runs and dark themes stay readable.
"""
