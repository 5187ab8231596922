"""What ``wessl evaluate`` is made of."""
