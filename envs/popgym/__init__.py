"""POPGym: small tasks that need a memory, from a package of that name."""
