"""The paper's protocols: k-NN, few labels, linear, transfer."""
