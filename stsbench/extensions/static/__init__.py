"""Static models: tables of a transformer's vectors of single tokens, distilled by model2vec."""
