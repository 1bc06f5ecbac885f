"""Why a point can't run, whatever memory there is: reasons of every point, of training and of generation."""
