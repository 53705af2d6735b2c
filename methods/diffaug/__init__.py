"""DiffAug (Wang and Lu 2022)."""
