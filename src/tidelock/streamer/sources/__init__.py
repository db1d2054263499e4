"""Sources of the streamer: Kafka topics, folders of files, Hudi tables and databases."""
