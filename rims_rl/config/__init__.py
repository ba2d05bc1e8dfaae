"""Hyperparameters: the zoo's, a user's own, and what is wrong with them."""
