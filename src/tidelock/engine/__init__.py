"""Where kernel functions run: in threads of this process."""
