"""The local engine: reads and writes file groups in threads of this process."""
