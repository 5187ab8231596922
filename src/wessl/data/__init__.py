"""Where pictures come from, and how they become batched views on the device."""
