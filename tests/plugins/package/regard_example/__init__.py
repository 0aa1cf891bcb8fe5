"""One of everything that a package may add to regard, each through an entry point."""
