"""The paper's supervised tasks, one module per task: what ``rims-rl supervised`` trains."""
