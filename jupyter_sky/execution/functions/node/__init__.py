"""Files of functions that run in the engines' processes, and in call processes below them."""
