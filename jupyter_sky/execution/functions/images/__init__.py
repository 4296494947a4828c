"""Images and specifications of pools."""
