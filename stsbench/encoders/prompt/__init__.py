"""What stands around a text: templates, tokens, prompts trained with a model, and what is learned for them."""
