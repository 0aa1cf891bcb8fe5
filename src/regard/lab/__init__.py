"""The lectures' claims as experiments: each has a figure, a table and claims that are checked."""
