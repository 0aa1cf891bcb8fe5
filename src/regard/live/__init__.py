"""Live pages: one HTML file with a small model inside, which reads what is typed."""
