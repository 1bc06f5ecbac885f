"""Workflows of CI systems that run a suite each night."""
