"""Suites: whole experiments. ``plan`` reads a YAML file, ``engine`` runs its jobs, with ``local`` or ``on_ray`` as the
place, ``job`` is what each one does, and ``report`` makes a page of what they left."""
