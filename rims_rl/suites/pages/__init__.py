"""Pages of results, one module for each kind of suite."""
