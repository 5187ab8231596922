"""Tar shards in the WebDataset layout: found, indexed, read and written."""
