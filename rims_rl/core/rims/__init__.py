"""RIMs: one step (``cell``), layers over sequences (``layer``), and the engines that run them."""
