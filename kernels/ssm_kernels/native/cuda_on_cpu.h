// CUDA on the CPU for tests: every thread of a block is a fiber, and the blocks run one after the other.
//
// A fiber runs until it reaches a barrier that other threads have not reached. Then the next fiber runs. The order of
// the fibers must not change results. `cuda_on_cpu_order` sets it: a kernel without a necessary barrier gives other
// bits in another order. If some threads never reach a barrier, the process ends with a message. Shared memory is NaN
// before a block starts, which reveals reads of uninitialized memory.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#define __global__
#define __device__
#define __launch_bounds__(...)
#define SHARED_FLOATS(name) float* name = cuda_on_cpu::shared.data()

struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};
static Index3 threadIdx, blockIdx, blockDim;

// ---------------------------------------------------------------------------------------------- half precision

struct __nv_bfloat16 {
  uint16_t bits;
};
struct __half {
  uint16_t bits;
};

inline float from_bits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

inline uint32_t to_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}

inline float __bfloat162float(__nv_bfloat16 x) { return from_bits(uint32_t(x.bits) << 16); }

inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  if (x != x) return {0x7fff};
  const uint32_t bits = to_bits(x);
  return {uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};  // round to nearest, ties to even
}

inline float __half2float(__half x) {
  const int exponent = x.bits >> 10 & 31, fraction = x.bits & 1023;
  float value;
  if (exponent == 31)
    value = fraction ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
  else
    value = exponent ? std::ldexp(1024.0f + fraction, exponent - 25) : std::ldexp(float(fraction), -24);
  return x.bits >> 15 ? -value : value;
}

inline __half __float2half_rn(float x) {
  const uint16_t sign = to_bits(x) >> 16 & 0x8000;
  const float size = std::fabs(x);
  if (x != x) return {0x7fff};
  if (size >= 65520.0f) return {uint16_t(sign | 0x7c00)};
  if (size == 0.0f) return {sign};  // frexp gives it no exponent
  int exponent = 0;
  std::frexp(size, &exponent);
  exponent = std::max(exponent - 11, -24);  // exponent of the last place; nearbyint rounds ties to even
  const int places = int(std::nearbyint(std::ldexp(size, -exponent)));
  return {uint16_t(sign | (((exponent + 24) << 10) + places))};
}

// ------------------------------------------------------------------------------------------------- mathematics

inline float fast_exp2(float x) {
  const float result = exp2f(x);
  return result < std::numeric_limits<float>::min() ? 0.0f : result;
}
inline float __fdividef(float x, float y) { return x / y; }
inline void prefetch(const void* address) { (void)*static_cast<const volatile char*>(address); }

// ------------------------------------------------------------------------------------------------------- fibers

namespace cuda_on_cpu {

constexpr int MOST_THREADS = 1024, WARP = 32;
constexpr size_t STACK = 256 * 1024;

struct Barrier {
  int members = 0, arrived = 0, generation = 0;
};

struct Fiber {
  ucontext_t start;
  jmp_buf place;
  bool started = false, done = false;
  std::vector<char> stack;
};

static std::vector<float> shared;
static Fiber fibers[MOST_THREADS];
static Barrier block_barrier, warp_barriers[MOST_THREADS / WARP];
static float exchanged[2][MOST_THREADS];
static jmp_buf scheduler;
static int current = 0, order = 0;
static bool progress = false;
static void (*call)(const void*) = nullptr;
static const void* call_argument = nullptr;

static void body() {
  call(call_argument);
  fibers[current].done = progress = true;
  _longjmp(scheduler, 1);
}

static void wait(Barrier& barrier) {
  const int generation = barrier.generation;
  progress = true;
  if (++barrier.arrived == barrier.members) {
    barrier.arrived = 0;
    barrier.generation++;
    return;
  }
  const int self = current;
  while (barrier.generation == generation)
    if (!_setjmp(fibers[self].place)) _longjmp(scheduler, 1);
  progress = true;
}

static void resume(int thread) {
  current = thread;
  threadIdx.x = thread;
  if (_setjmp(scheduler)) return;
  Fiber& fiber = fibers[thread];
  if (fiber.started) _longjmp(fiber.place, 1);
  fiber.started = true;
  setcontext(&fiber.start);
}

static void run_block(int threads) {
  std::fill(shared.begin(), shared.end(), std::numeric_limits<float>::quiet_NaN());
  block_barrier = {threads, 0, 0};
  for (int warp = 0; warp * WARP < threads; warp++) warp_barriers[warp] = {std::min(WARP, threads - warp * WARP), 0, 0};
  std::vector<int> turns(threads);
  for (int i = 0; i < threads; i++) {
    turns[i] = order == 1 ? threads - 1 - i : order > 1 ? int((int64_t(i) * order) % threads) : i;
    Fiber& fiber = fibers[i];
    fiber.started = fiber.done = false;
    fiber.stack.resize(STACK);
    getcontext(&fiber.start);
    fiber.start.uc_stack.ss_sp = fiber.stack.data();
    fiber.start.uc_stack.ss_size = STACK;
    fiber.start.uc_link = nullptr;
    makecontext(&fiber.start, body, 0);
  }
  for (bool alive = true; alive;) {
    alive = progress = false;
    for (int i : turns) {
      if (fibers[i].done) continue;
      resume(i);
      alive = true;
    }
    if (alive && !progress) {
      std::fprintf(stderr, "cuda_on_cpu: a barrier that some threads of the block never reach\n");
      std::abort();
    }
  }
}

}  // namespace cuda_on_cpu

inline void __syncthreads() { cuda_on_cpu::wait(cuda_on_cpu::block_barrier); }
inline void __syncwarp(unsigned = 0xffffffffu) {
  cuda_on_cpu::wait(cuda_on_cpu::warp_barriers[cuda_on_cpu::current / cuda_on_cpu::WARP]);
}

inline float __shfl_xor_sync(unsigned, float value, int mask) {
  using namespace cuda_on_cpu;
  const int self = current;
  float* slots = exchanged[warp_barriers[self / WARP].generation & 1];  // the next shuffle uses the other slots
  slots[self] = value;
  __syncwarp();
  return slots[self ^ mask];
}

// ------------------------------------------------------------------------------------------------------ launches

inline int begin(int) { return 0; }
inline int launch_error() { return 0; }
inline const char* error_text(int) { return "no error"; }

template <typename Argument>
void launch(void (*kernel)(Argument), int64_t blocks, int threads, size_t shared_bytes, void*,
            const Argument& argument) {
  struct Call {
    void (*kernel)(Argument);
    const Argument* argument;
  } what{kernel, &argument};
  cuda_on_cpu::call = [](const void* data) {
    const Call* what = static_cast<const Call*>(data);
    what->kernel(*what->argument);
  };
  cuda_on_cpu::call_argument = &what;
  cuda_on_cpu::shared.resize(shared_bytes / sizeof(float));
  blockDim.x = threads;
  for (int64_t block = 0; block < blocks; block++) {
    blockIdx.x = static_cast<unsigned>(block);
    cuda_on_cpu::run_block(threads);
  }
}

// The order of the threads. 0: first to last; 1: last to first; a larger odd number: with this stride.
extern "C" inline __attribute__((used)) void cuda_on_cpu_order(int order) { cuda_on_cpu::order = order; }
