// The causal convolution on a GPU, behind a C ABI. Compiled with -DELEMENT (see cuda.h) and -DTAPS=K.
#include "causal_conv1d.cuh"

namespace {

int64_t blocks(const Convolution& c, int pack) {
  return (c.channels / pack * c.runs * c.batch + THREADS - 1) / THREADS;
}

}  // namespace

// All functions return 0 or an error of the CUDA runtime. causal_conv1d_error returns its message.
extern "C" int causal_conv1d_forward(const Convolution* c, int device, void* stream) {
  if (int error = begin(device)) return error;
  if (c->channels % 4 == 0)
    launch(forward_kernel<4>, blocks(*c, 4), THREADS, 0, stream, *c);
  else
    launch(forward_kernel<1>, blocks(*c, 1), THREADS, 0, stream, *c);
  return launch_error();
}

extern "C" int causal_conv1d_backward(const Convolution* c, int device, void* stream) {
  if (int error = begin(device)) return error;
  if (c->channels % 4 == 0)
    launch(backward_kernel<4>, blocks(*c, 4), THREADS, 0, stream, *c);
  else
    launch(backward_kernel<1>, blocks(*c, 1), THREADS, 0, stream, *c);
  return launch_error();
}

extern "C" const char* causal_conv1d_error(int error) { return error_text(error); }
