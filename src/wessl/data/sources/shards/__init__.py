"""Tar shards in the WebDataset layout: found, indexed and read; ``packing`` writes them."""
