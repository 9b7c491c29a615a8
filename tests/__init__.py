"""Tests; helpers that several of them need are modules here."""
