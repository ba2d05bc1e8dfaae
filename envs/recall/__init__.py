"""The recall task: a cue, a stretch of distractors, and the question what the cue was."""
