"""Recurrent PPO and A2C."""
