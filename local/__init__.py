"""What runs on one machine for set-up, the demo and tests."""
