"""What labelled features are classified with: neighbours, logistic regression, linear layers."""
