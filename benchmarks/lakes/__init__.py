"""The same rows loaded, changed and read by this project and by what one might pick instead."""
