"""Views of what happens inside a model, as HTML pages and as figures."""
