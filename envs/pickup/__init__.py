"""The pick-up task: the paper's novel distractors."""
