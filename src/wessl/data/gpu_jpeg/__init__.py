"""JPEGs decoded by the GPU."""
