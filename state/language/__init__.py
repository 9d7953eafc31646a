"""The languages people use: the runtime's texts, and the few words of consent and refusal."""
