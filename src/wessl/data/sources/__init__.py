"""Where pictures come from: folders, lists, arrays, the hub, shards."""
