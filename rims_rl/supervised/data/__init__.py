"""What the tasks are made of: MNIST's files, and balls that bounce."""
