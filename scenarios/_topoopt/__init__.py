"""What belongs to TopoOpt's paper: the fabrics that it compares, what they cost, and its studies."""
