"""One command in many processes."""
