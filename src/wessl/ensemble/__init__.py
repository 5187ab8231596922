"""The idea of the paper: heads, weightings, losses and targets, as pure tensor code."""
