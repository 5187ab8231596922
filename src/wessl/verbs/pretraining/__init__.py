"""What ``wessl pretrain`` does before, beside and after the loop."""
