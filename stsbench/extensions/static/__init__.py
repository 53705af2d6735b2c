"""A static model: a transformer's vectors of single tokens as a table, which model2vec makes."""
