"""What the streamer reads: topics, folders of files, other tables, databases."""
