"""YAML data, read with ``importlib.resources.files("rims_rl.zoo_configs")``; no code lives here."""
