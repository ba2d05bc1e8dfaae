"""How a layer of RIMs is run over a sequence: loops in torch with a hand-written backward, and the same in C."""
