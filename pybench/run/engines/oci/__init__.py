"""Docker and podman: engines that start OCI containers with nearly the same command line."""
