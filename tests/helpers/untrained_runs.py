"""Small untrained runs to look into: one for each kind of input."""

from rims_rl.agents import RecurrentPPO
from rims_rl.agents.saved.policy_files import describe_policy, save_policy
from rims_rl.envs.make import make_envs
from rims_rl.envs.names import resolve

POLICIES = {
    "Breakout": "CnnRimsPolicy",
    "Camera-v0": "CnnRimsPolicy",
    "PickupKnown": "MultiInputRimsPolicy",
}  # vectors for all others


def save_untrained(folder, name, **kwargs):
    """The files of a run that ``inspect`` reads."""
    kwargs = {"num_rims": 3, "num_active": 2, "rim_size": 4, **kwargs}
    policy = POLICIES.get(name, "MlpRimsPolicy")
    model = RecurrentPPO(policy, make_envs(resolve(name), 1, 0), n_steps=8, batch_size=8, seed=0, policy_kwargs=kwargs)
    description = describe_policy(model.policy, kwargs, env=name, algo="ppo", seed=0, steps=0)
    save_policy(model.policy, folder, description)
    return folder
