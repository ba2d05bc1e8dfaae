"""What Gymnasium sees, imported as ``rims_rl.envs``: Atari, MiniGrid with distractors, MultiRoom and perturbations."""
