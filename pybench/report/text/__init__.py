"""What every report is made of: aligned tables, labels of points, text from outside made safe."""
