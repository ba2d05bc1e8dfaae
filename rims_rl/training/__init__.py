"""``rims-rl train``."""
