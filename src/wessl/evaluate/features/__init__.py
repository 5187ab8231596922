"""Pictures through a frozen encoder, and what is read from it."""
