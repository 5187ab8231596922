"""What training reports, handed on to experiment trackers."""
