"""A fight for one lock that can be watched: several processes, two faults, one verdict."""
