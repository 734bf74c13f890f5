"""Receiving a push: who pushes, what the policy says of it, and what follows when git has taken it."""
