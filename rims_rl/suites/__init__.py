"""Suites: whole experiments. ``plan`` reads a YAML file, ``job`` is what each of its jobs does, ``run`` runs them with
``rims_rl.jobs``, and ``pages`` make a page of what they left."""
