"""Model families, one file each, behind the interface of `language_model`."""
