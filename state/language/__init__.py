"""Languages: the runtime's texts, and the few words that mean consent or refusal."""
