"""Looking inside a model: what it reads, holds and would say next, as pages and as figures."""
