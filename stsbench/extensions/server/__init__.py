"""`openai:NAME`: a model behind a server that answers POST /embeddings as OpenAI's does."""
