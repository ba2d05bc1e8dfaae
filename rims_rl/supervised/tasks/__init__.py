"""The paper's supervised tasks, one module each."""
