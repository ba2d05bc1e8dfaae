"""What Gymnasium sees: environments and wrappers."""

from rims_rl.envs.efference import EfferenceCopy

__all__ = ["EfferenceCopy"]
