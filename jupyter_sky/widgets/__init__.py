"""What jupyter_sky shows: the status line above a cell's outputs, tables, and the cost meter.

Every view has an HTML form that needs neither scripts nor style sheets and a plain-text form, so
that saved notebooks, headless runs and dark themes stay readable.
"""
