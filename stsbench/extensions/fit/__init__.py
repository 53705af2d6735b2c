"""A post-processing, fitted on texts and written with its model as one folder."""
