"""Where the jobs of a suite run: processes of this machine, or tasks of a Ray cluster."""
