"""What happens while an agent trains."""
