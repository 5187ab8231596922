"""Draws what run folders hold as one self-contained page; never runs a model."""
