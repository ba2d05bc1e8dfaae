"""What Stable-Baselines3 sees: RIMs policies, and recurrent PPO and A2C that train them fast."""

from rims_rl.agents.a2c import RecurrentA2C
from rims_rl.agents.policies import CnnRimsPolicy, MlpRimsPolicy, MultiInputRimsPolicy
from rims_rl.agents.ppo import RecurrentPPO

__all__ = ["CnnRimsPolicy", "MlpRimsPolicy", "MultiInputRimsPolicy", "RecurrentA2C", "RecurrentPPO"]
