"""Programs that run as ranks of a job, and what starts them."""
