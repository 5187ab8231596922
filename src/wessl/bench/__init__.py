"""How fast this machine does our work, beside the straightforward way of doing the same."""
