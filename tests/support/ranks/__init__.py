"""Programs that run as ranks of a job, and functions that start jobs."""
