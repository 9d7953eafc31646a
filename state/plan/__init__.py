"""Plans: their shape, rules, text, steps and progress."""
