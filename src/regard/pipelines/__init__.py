"""What `regard.load` returns: a trained model with its tokenizers, ready to use."""
