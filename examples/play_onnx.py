"""Plays a policy that `rims-rl export` wrote, with numpy, onnxruntime and Gymnasium alone.

python examples/play_onnx.py logs/ppo/CartPole-v1_1/CartPole-v1.onnx CartPole-v1
"""

import sys
from pathlib import Path

import gymnasium as gym

sys.path.insert(0, str(Path(sys.argv[1]).parent))  # where `rims-rl export` put rims_runtime.py
from rims_runtime import load

agent, env = load(sys.argv[1], seed=0), gym.make(sys.argv[2])
for episode in range(5):
    observation, _ = env.reset(seed=episode)
    start, over, score = True, False, 0.0
    while not over:
        action = agent.act(observation, start)
        observation, reward, terminated, truncated, _ = env.step(action)
        start, over, score = False, terminated or truncated, score + float(reward)
    print(f"episode {episode + 1}: {score:.0f}")
