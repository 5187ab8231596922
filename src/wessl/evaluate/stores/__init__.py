"""Features and results kept in the run folder, and when they hold no longer."""
