"""The studio: a local web app over a folder of runs, `regard studio`."""
