"""Bodies of MuJoCo: drawn quickly, and with perturbed joints."""
