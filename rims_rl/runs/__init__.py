"""What is on disk: the folder of a run, and the JSON files that we write and read again."""
