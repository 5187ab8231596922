"""How fast this machine does our work, beside the plain way of doing the same."""
