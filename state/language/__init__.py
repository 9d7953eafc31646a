"""The languages people use: the runtime's texts, the words of consent and refusal, and how a language is told."""
