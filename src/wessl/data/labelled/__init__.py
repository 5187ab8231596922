"""Which labels an evaluation may see, and labelled datasets to measure on."""
