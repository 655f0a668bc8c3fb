"""The parts of TopoOpt's paper alone: the fabrics that it compares, their costs, and its studies."""
