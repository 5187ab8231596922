"""From images to tokens: the encoders, and the small protocol they share."""
