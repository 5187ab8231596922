"""How many are right, which are not, and how sure that is."""
