"""Person re-identification: train embeddings of pictures of people and rank a gallery by its distance to a query."""
