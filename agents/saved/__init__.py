"""Policies and checkpoints on disk, without pickle."""
