"""Commands for those who write a topology or an assignor: look at it, compare it, test it."""
