import torch

torch.set_num_threads(1)  # two test processes share two cores
