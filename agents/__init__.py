"""What Stable-Baselines3 sees: RIMs policies, and recurrent PPO and A2C that train them fast."""

from rims_rl.agents.algorithms.a2c import RecurrentA2C
from rims_rl.agents.algorithms.ppo import RecurrentPPO
from rims_rl.agents.policies.rims_policies import CnnRimsPolicy, MlpRimsPolicy, MultiInputRimsPolicy

__all__ = ["CnnRimsPolicy", "MlpRimsPolicy", "MultiInputRimsPolicy", "RecurrentA2C", "RecurrentPPO"]
