"""What ``wessl doctor`` is made of."""
