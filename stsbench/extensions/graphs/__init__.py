"""Models exported to ONNX or OpenVINO, run by these libraries, with stsbench's own tokenisation and pooling."""
