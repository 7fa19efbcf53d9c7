"""Data that are made, not downloaded: for tests, tutorials, and the tasks that papers use."""
