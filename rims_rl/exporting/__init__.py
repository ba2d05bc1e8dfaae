"""``rims-rl export``: policies as files that run elsewhere."""
