"""Export runs to other formats: Hub model cards with scores, mteb's result files, records as JSON, trained models."""
