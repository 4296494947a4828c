"""State of long work, saved at safe points and found again on another machine."""
