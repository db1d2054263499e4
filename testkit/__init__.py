"""The test kit: real servers, fault-injecting proxies, simulators and crash tests."""
