"""The public test kit: real servers, a fault-injecting proxy, and what else proves a lock."""
