"""BERT-flow: an invertible network that maps sentence vectors to a standard normal distribution, fitted without labels."""
