"""Processes that decode pictures side by side."""
