"""Protocols that measure a frozen encoder: functions from features and labels to results."""
