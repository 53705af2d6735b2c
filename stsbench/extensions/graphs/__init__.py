"""Models exported to ONNX or OpenVINO, run by these libraries between our own tokeniser and poolers."""
