"""A trained encoder put to use: for timm, Hugging Face and ONNX; embeddings; few labels to many."""
