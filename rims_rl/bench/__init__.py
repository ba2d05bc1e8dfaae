"""Speed, measured side by side: one module per ``rims-rl bench`` command."""
