"""Any source into tar shards."""
