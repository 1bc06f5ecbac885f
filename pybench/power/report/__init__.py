"""What the power command and the sensors' probes found."""
