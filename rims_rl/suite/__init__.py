"""Suites: whole experiments. ``plan`` reads a YAML file, ``local`` runs its jobs, ``job`` is what each one does, and
``report`` makes a page of what they left."""
