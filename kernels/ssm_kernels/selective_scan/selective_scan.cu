// The selective scan of Mamba-1 on a GPU, behind a C ABI. Compiled with -DELEMENT (see cuda.h), -DSTATES=N and
// -DSOFTPLUS=true | false.
//
// If batch times channels is too small for the device, segments of the sequence run in parallel. A first pass computes
// every segment's state from zero and its decay, `combine` computes the state before each segment, and a second pass
// computes the outputs. The backward does the same in reverse.
#include "backward.cuh"
#include "forward.cuh"

namespace {

constexpr int COMBINE_THREADS = 256;

int64_t blocks(const Scan& s) { return (s.channels + BLOCK_CHANNELS - 1) / BLOCK_CHANNELS * s.segments * s.batch; }

int64_t combine_blocks(const Scan& s) {
  return (s.batch * s.channels * N + COMBINE_THREADS - 1) / COMBINE_THREADS;
}

template <bool GATED>
void forward(const Scan& s, void* stream) {
  if (s.segments > 1) {
    launch(forward_kernel<true, false>, blocks(s), THREADS, FORWARD_SHARED * sizeof(float), stream, s);
    launch(combine<true>, combine_blocks(s), COMBINE_THREADS, 0, stream, s);
  }
  launch(forward_kernel<false, GATED>, blocks(s), THREADS, FORWARD_SHARED * sizeof(float), stream, s);
}

template <bool GATED>
void backward(const Scan& s, void* stream) {
  if (s.segments > 1) {
    launch(local_adjoint_kernel<GATED>, blocks(s), THREADS, LOCAL_ADJOINT_SHARED * sizeof(float), stream, s);
    launch(combine<false>, combine_blocks(s), COMBINE_THREADS, 0, stream, s);
  }
  launch(backward_kernel<GATED>, blocks(s), THREADS, backward_shared(GATED) * sizeof(float), stream, s);
}

}  // namespace

// All functions return 0 or an error of the CUDA runtime. selective_scan_error returns its message.
extern "C" int selective_scan_forward(const Scan* scan, int device, void* stream) {
  if (int error = begin(device)) return error;
  scan->z != nullptr ? forward<true>(*scan, stream) : forward<false>(*scan, stream);
  return launch_error();
}

extern "C" int selective_scan_backward(const Scan* scan, int device, void* stream) {
  if (int error = begin(device)) return error;
  scan->z != nullptr ? backward<true>(*scan, stream) : backward<false>(*scan, stream);
  return launch_error();
}

extern "C" const char* selective_scan_error(int error) { return error_text(error); }

extern "C" int selective_scan_block_channels() { return BLOCK_CHANNELS; }
