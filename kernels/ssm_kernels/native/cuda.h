// Common header of all CUDA sources. nvcc compiles the sources for a GPU. For tests without a GPU, a C++ compiler
// compiles the same sources for the CPU with cuda_on_cpu.h.
//
// A library is compiled for one type of tensor elements, -DELEMENT=float | __half | __nv_bfloat16. It computes in
// float.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// The dynamic shared memory of a block, as floats.
#define SHARED_FLOATS(name) extern __shared__ __align__(16) float name[]

// Selects the device. nvcc links a copy of the CUDA runtime into each library, and torch may select the device only in
// its own copy.
inline int begin(int device) { return cudaSetDevice(device); }
inline int launch_error() { return cudaGetLastError(); }
inline const char* error_text(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

// Runs kernel(argument) on every thread of every block.
template <typename Argument>
void launch(void (*kernel)(Argument), int64_t blocks, int threads, size_t shared_bytes, void* stream,
            const Argument& argument) {
  if (shared_bytes > 48 * 1024)  // larger sizes need this attribute
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
  kernel<<<static_cast<unsigned>(blocks), threads, shared_bytes, static_cast<cudaStream_t>(stream)>>>(argument);
}

// 2^x with an error of at most 2 ulp. Results below 2^-126 are 0.
__device__ inline float fast_exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// Prefetches the cache line at `address` into the L2 cache.
__device__ inline void prefetch(const void* address) { asm volatile("prefetch.global.L2 [%0];" ::"l"(address)); }
#else
#include "cuda_on_cpu.h"
#endif

using Element = ELEMENT;

constexpr unsigned ALL_LANES = 0xffffffffu;

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__half x) { return __half2float(x); }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
__device__ T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline __half from_float<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// 1 / (1 + e^-x). It is 0, not NaN, where e^-x is infinite.
__device__ inline float sigmoid(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }

// SIZE adjacent elements that one instruction loads or stores.
template <typename T, int SIZE>
struct alignas(sizeof(T) * SIZE) Pack {
  T value[SIZE];
};

template <int SIZE>
__device__ inline void load_pack(float (&values)[SIZE], const float* address) {
  constexpr int AT_ONCE = SIZE % 4 == 0 ? 4 : SIZE % 2 == 0 ? 2 : 1;
#pragma unroll
  for (int i = 0; i < SIZE; i += AT_ONCE) {
    const auto pack = *reinterpret_cast<const Pack<float, AT_ONCE>*>(address + i);
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) values[i + j] = pack.value[j];
  }
}

template <int SIZE>
__device__ inline void store_pack(float* address, const float (&values)[SIZE]) {
  constexpr int AT_ONCE = SIZE % 4 == 0 ? 4 : SIZE % 2 == 0 ? 2 : 1;
#pragma unroll
  for (int i = 0; i < SIZE; i += AT_ONCE) {
    Pack<float, AT_ONCE> pack;
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) pack.value[j] = values[i + j];
    *reinterpret_cast<Pack<float, AT_ONCE>*>(address + i) = pack;
  }
}
