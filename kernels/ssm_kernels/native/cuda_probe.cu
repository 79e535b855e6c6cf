// An empty GPU program. It runs only if nvcc, the driver and the device are compatible.
#include "cuda.h"

__global__ void nothing(int) {}

extern "C" int cuda_probe(int device) {
  if (int error = begin(device)) return error;
  launch(nothing, 1, 32, 0, nullptr, 0);
  return launch_error();
}

extern "C" const char* cuda_probe_error(int error) { return error_text(error); }
