"""Policies for Stable-Baselines3: encoder -> core -> heads."""

from rims_rl.agents.policies.rims_policies import CnnRimsPolicy, MlpRimsPolicy, MultiInputRimsPolicy

__all__ = ["CnnRimsPolicy", "MlpRimsPolicy", "MultiInputRimsPolicy"]
