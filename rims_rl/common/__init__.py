"""What everything else stands on: errors, files, statistics, pictures. Imports nothing of ours."""
