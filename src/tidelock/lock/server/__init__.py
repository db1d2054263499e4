"""The lock service: locks for any program over HTTP and gRPC, with the Dapr building-block API."""
