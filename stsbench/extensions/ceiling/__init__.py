"""How well a perfect model could score against labels on which their annotators differ."""
