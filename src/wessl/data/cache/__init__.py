"""Pictures decoded once: built, kept safe on the disk, read, and told apart."""
