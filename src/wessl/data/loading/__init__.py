"""Batches: in which order, decoded by whom, and how they reach the device."""
