"""MiniGrid and BabyAI: observations that Stable-Baselines3 accepts, many environments side by side."""
