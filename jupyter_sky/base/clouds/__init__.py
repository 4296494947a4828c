"""Facts of clouds, and their register."""
