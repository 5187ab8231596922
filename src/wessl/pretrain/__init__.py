"""Teacher and student steps, the loop around them, and what watches over it."""
