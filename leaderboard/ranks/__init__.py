"""Ranking of the leaderboard: rows measured under the same setting are ranked together, beside unranked published rows."""
