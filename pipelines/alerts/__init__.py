"""Alerts: news about incidents and findings goes to webhooks, each once, also over crashes."""
