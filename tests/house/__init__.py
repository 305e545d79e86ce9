"""Rules about the source itself. Each rule is a function of text, tested on text that breaks it."""
