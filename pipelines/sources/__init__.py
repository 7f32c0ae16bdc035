"""What reads the outside world."""
