"""Searching for hyperparameters with Optuna: ``search_space`` reads what to try, ``trial_job`` trains one trial, and
``study`` plans them and writes what was found. Optuna is an extra: ``pip install 'rims-rl[tune]'``."""
