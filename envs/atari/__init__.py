"""Atari games, and what may be drawn over them."""
