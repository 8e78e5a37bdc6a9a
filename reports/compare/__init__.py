"""`compare`: the same work in two or more captures side by side. Works on documents of `grpcdiag.analysis/1`."""
