"""From a record key to a file group: bucket hashes and bloom filters."""
