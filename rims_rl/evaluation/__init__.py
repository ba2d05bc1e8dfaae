"""``rims-rl evaluate`` and ``report``: play policies, and say how well they do."""
