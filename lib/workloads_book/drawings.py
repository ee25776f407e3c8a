"""Drawings that serve one idea each: what the four kinds of `figures` cannot show. Each takes what the page computed."""
