"""Views of pictures for training and evaluation: settings, resampling, colours, kernels."""
