"""One picture file to pixels, or the reason why not."""
