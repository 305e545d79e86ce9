"""Controllers: from a view of the tables and a moment to intents. Pure; they keep nothing."""
