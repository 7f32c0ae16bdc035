"""Incidents for people and machines: reading them, `top`, the list, all about one, what people do about them."""
