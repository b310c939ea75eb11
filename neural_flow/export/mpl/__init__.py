"""Exporters that draw through matplotlib; nothing else imports it."""
