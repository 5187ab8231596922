"""What the heads learnt: how they assign pictures to codes, and how alike they do it."""
