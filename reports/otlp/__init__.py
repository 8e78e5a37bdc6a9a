"""Write RPCs and their blocked intervals as OpenTelemetry spans (OTLP)."""
