"""What Gymnasium sees: environments and wrappers."""

from rims_rl.envs import registration  # noqa: F401  from here on, gym.make knows RimsRL/...
from rims_rl.envs.efference import EfferenceCopy

__all__ = ["EfferenceCopy"]
