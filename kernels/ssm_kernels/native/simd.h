// Vectors of float or double for three instruction sets, chosen by the macro that the build defines:
//   SIMD_AVX512 (16 floats or 8 doubles), SIMD_AVX2 (8 or 4, with FMA), none (4 or 2, GCC and Clang vector extensions).
// Arithmetic operators come from the vector extensions, and all other functions from intrinsics. Nothing here assumes
// -ffast-math: every function treats NaN and infinity like the C library.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>
#if defined(__SSE__)
#include <immintrin.h>
#endif

#define SIMD_INLINE inline __attribute__((always_inline))

namespace simd {

#if defined(SIMD_AVX512)
constexpr int bytes = 64;
#elif defined(SIMD_AVX2)
constexpr int bytes = 32;
#else
constexpr int bytes = 16;
#endif

template <typename T> struct Types;
template <> struct Types<float> {
    typedef float Raw __attribute__((vector_size(bytes)));
    typedef float Unaligned __attribute__((vector_size(bytes), aligned(4), may_alias));
    typedef int32_t Int;
    typedef int32_t RawInt __attribute__((vector_size(bytes)));
};
template <> struct Types<double> {
    typedef double Raw __attribute__((vector_size(bytes)));
    typedef double Unaligned __attribute__((vector_size(bytes), aligned(8), may_alias));
    typedef int64_t Int;
    typedef int64_t RawInt __attribute__((vector_size(bytes)));
};

template <typename T> struct Vec {
    typedef typename Types<T>::Raw Raw;
    static constexpr int width = bytes / sizeof(T);
    Raw v;

    Vec() = default;
    SIMD_INLINE explicit Vec(Raw raw) : v(raw) {}
    SIMD_INLINE explicit Vec(T x) : v(x - Raw{}) {}  // all lanes; x - 0 keeps the sign of zero

    static SIMD_INLINE Vec zero() { return Vec(Raw{}); }
    static SIMD_INLINE Vec load(const T* p) { return Vec((Raw) * (const typename Types<T>::Unaligned*)p); }
    SIMD_INLINE void store(T* p) const { *(typename Types<T>::Unaligned*)p = v; }
    // The first n lanes, 0 <= n <= width. The other lanes are read as zero and not written.
    static SIMD_INLINE Vec load_n(const T* p, int64_t n);
    SIMD_INLINE void store_n(T* p, int64_t n) const;
};

// ---- Masked tails ----

#if defined(SIMD_AVX512)
SIMD_INLINE __mmask16 first_lanes(int64_t n) { return (__mmask16)((1u << n) - 1u); }
template <> SIMD_INLINE Vec<float> Vec<float>::load_n(const float* p, int64_t n) {
    return Vec((Raw)_mm512_maskz_loadu_ps(first_lanes(n), p));
}
template <> SIMD_INLINE void Vec<float>::store_n(float* p, int64_t n) const {
    _mm512_mask_storeu_ps(p, first_lanes(n), (__m512)v);
}
template <> SIMD_INLINE Vec<double> Vec<double>::load_n(const double* p, int64_t n) {
    return Vec((Raw)_mm512_maskz_loadu_pd((__mmask8)first_lanes(n), p));
}
template <> SIMD_INLINE void Vec<double>::store_n(double* p, int64_t n) const {
    _mm512_mask_storeu_pd(p, (__mmask8)first_lanes(n), (__m512d)v);
}
#elif defined(SIMD_AVX2)
template <typename Int> SIMD_INLINE __m256i first_lanes(int64_t n) {
    alignas(32) static constexpr Int ones_then_zeros[64 / sizeof(Int)] = {
        -1, -1, -1, -1, sizeof(Int) == 4 ? -1 : 0, sizeof(Int) == 4 ? -1 : 0, sizeof(Int) == 4 ? -1 : 0,
        sizeof(Int) == 4 ? -1 : 0};
    return _mm256_loadu_si256((const __m256i*)(ones_then_zeros + 32 / sizeof(Int) - n));
}
template <> SIMD_INLINE Vec<float> Vec<float>::load_n(const float* p, int64_t n) {
    return Vec((Raw)_mm256_maskload_ps(p, first_lanes<int32_t>(n)));
}
template <> SIMD_INLINE void Vec<float>::store_n(float* p, int64_t n) const {
    _mm256_maskstore_ps(p, first_lanes<int32_t>(n), (__m256)v);
}
template <> SIMD_INLINE Vec<double> Vec<double>::load_n(const double* p, int64_t n) {
    return Vec((Raw)_mm256_maskload_pd(p, first_lanes<int64_t>(n)));
}
template <> SIMD_INLINE void Vec<double>::store_n(double* p, int64_t n) const {
    _mm256_maskstore_pd(p, first_lanes<int64_t>(n), (__m256d)v);
}
#else
template <typename T> SIMD_INLINE Vec<T> Vec<T>::load_n(const T* p, int64_t n) {
    Raw raw{};
    for (int64_t i = 0; i < n; i++) raw[i] = p[i];
    return Vec(raw);
}
template <typename T> SIMD_INLINE void Vec<T>::store_n(T* p, int64_t n) const {
    for (int64_t i = 0; i < n; i++) p[i] = v[i];
}
#endif

// ---- Arithmetic ----

template <typename T> SIMD_INLINE Vec<T> operator+(Vec<T> a, Vec<T> b) { return Vec<T>(a.v + b.v); }
template <typename T> SIMD_INLINE Vec<T> operator-(Vec<T> a, Vec<T> b) { return Vec<T>(a.v - b.v); }
template <typename T> SIMD_INLINE Vec<T> operator*(Vec<T> a, Vec<T> b) { return Vec<T>(a.v * b.v); }
template <typename T> SIMD_INLINE Vec<T> operator/(Vec<T> a, Vec<T> b) { return Vec<T>(a.v / b.v); }
template <typename T> SIMD_INLINE Vec<T> operator-(Vec<T> a) { return Vec<T>(-a.v); }
template <typename T> SIMD_INLINE Vec<T>& operator+=(Vec<T>& a, Vec<T> b) { return a = a + b; }
template <typename T> SIMD_INLINE Vec<T>& operator*=(Vec<T>& a, Vec<T> b) { return a = a * b; }

// a * b + c, with a single rounding if the instruction set supports it.
template <typename T> SIMD_INLINE Vec<T> fma(Vec<T> a, Vec<T> b, Vec<T> c) { return Vec<T>(a.v * b.v + c.v); }
// Maximum and minimum. The result is b if one operand is NaN.
template <typename T> SIMD_INLINE Vec<T> max(Vec<T> a, Vec<T> b) { return Vec<T>(a.v > b.v ? a.v : b.v); }
template <typename T> SIMD_INLINE Vec<T> min(Vec<T> a, Vec<T> b) { return Vec<T>(a.v < b.v ? a.v : b.v); }

#if defined(SIMD_AVX512)
template <> SIMD_INLINE Vec<float> fma(Vec<float> a, Vec<float> b, Vec<float> c) {
    return Vec<float>((Types<float>::Raw)_mm512_fmadd_ps((__m512)a.v, (__m512)b.v, (__m512)c.v));
}
template <> SIMD_INLINE Vec<double> fma(Vec<double> a, Vec<double> b, Vec<double> c) {
    return Vec<double>((Types<double>::Raw)_mm512_fmadd_pd((__m512d)a.v, (__m512d)b.v, (__m512d)c.v));
}
template <> SIMD_INLINE Vec<float> max(Vec<float> a, Vec<float> b) {
    return Vec<float>((Types<float>::Raw)_mm512_max_ps((__m512)a.v, (__m512)b.v));
}
template <> SIMD_INLINE Vec<double> max(Vec<double> a, Vec<double> b) {
    return Vec<double>((Types<double>::Raw)_mm512_max_pd((__m512d)a.v, (__m512d)b.v));
}
template <> SIMD_INLINE Vec<float> min(Vec<float> a, Vec<float> b) {
    return Vec<float>((Types<float>::Raw)_mm512_min_ps((__m512)a.v, (__m512)b.v));
}
template <> SIMD_INLINE Vec<double> min(Vec<double> a, Vec<double> b) {
    return Vec<double>((Types<double>::Raw)_mm512_min_pd((__m512d)a.v, (__m512d)b.v));
}
#elif defined(SIMD_AVX2)
template <> SIMD_INLINE Vec<float> fma(Vec<float> a, Vec<float> b, Vec<float> c) {
    return Vec<float>((Types<float>::Raw)_mm256_fmadd_ps((__m256)a.v, (__m256)b.v, (__m256)c.v));
}
template <> SIMD_INLINE Vec<double> fma(Vec<double> a, Vec<double> b, Vec<double> c) {
    return Vec<double>((Types<double>::Raw)_mm256_fmadd_pd((__m256d)a.v, (__m256d)b.v, (__m256d)c.v));
}
template <> SIMD_INLINE Vec<float> max(Vec<float> a, Vec<float> b) {
    return Vec<float>((Types<float>::Raw)_mm256_max_ps((__m256)a.v, (__m256)b.v));
}
template <> SIMD_INLINE Vec<double> max(Vec<double> a, Vec<double> b) {
    return Vec<double>((Types<double>::Raw)_mm256_max_pd((__m256d)a.v, (__m256d)b.v));
}
template <> SIMD_INLINE Vec<float> min(Vec<float> a, Vec<float> b) {
    return Vec<float>((Types<float>::Raw)_mm256_min_ps((__m256)a.v, (__m256)b.v));
}
template <> SIMD_INLINE Vec<double> min(Vec<double> a, Vec<double> b) {
    return Vec<double>((Types<double>::Raw)_mm256_min_pd((__m256d)a.v, (__m256d)b.v));
}
#endif

// The same value. GCC keeps it in a register, instead of reading it from memory again at every use.
template <typename T> SIMD_INLINE Vec<T> in_register(Vec<T> a) {
#if defined(SIMD_AVX512)
    __asm__("" : "+v"(a.v));
#elif defined(__SSE__)
    __asm__("" : "+x"(a.v));
#elif defined(__aarch64__)
    __asm__("" : "+w"(a.v));
#endif
    return a;
}

// Selects per lane: a where x is negative, else b.
template <typename T> SIMD_INLINE Vec<T> where_negative(Vec<T> x, Vec<T> a, Vec<T> b) {
    return Vec<T>(x.v < typename Vec<T>::Raw{} ? a.v : b.v);
}
template <typename T> SIMD_INLINE Vec<T> abs(Vec<T> a) {
    typedef typename Types<T>::RawInt I;
    typedef typename Types<T>::Int Int;
    const Int magnitude = (Int)(~(uint64_t)0 >> (65 - 8 * sizeof(T)));
    return Vec<T>((typename Types<T>::Raw)((I)a.v & (magnitude - I{})));
}

#if defined(__clang__)
#define SIMD_SHUFFLE(T, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SIMD_SHUFFLE(T, a, b, ...) __builtin_shuffle(a, b, typename Types<T>::RawInt{__VA_ARGS__})
#endif

// The lanes of a and b form runs of `run` partial sums. Adds the two halves of each run; a's runs come before b's.
template <typename T, int run, int... lane>
SIMD_INLINE Vec<T> add_halves(Vec<T> a, Vec<T> b, std::integer_sequence<int, lane...>) {
    constexpr int half = run / 2;
    return Vec<T>(SIMD_SHUFFLE(T, a.v, b.v, (lane / half * run + lane % half)...) +
                  SIMD_SHUFFLE(T, a.v, b.v, (lane / half * run + half + lane % half)...));
}
template <typename T, int run = Vec<T>::width> SIMD_INLINE void sums_of(Vec<T>* v) {
    if constexpr (run > 1) {
#pragma GCC unroll 8
        for (int i = 0; i < run / 2; i++)
            v[i] = add_halves<T, run>(v[2 * i], v[2 * i + 1], std::make_integer_sequence<int, Vec<T>::width>());
        sums_of<T, run / 2>(v);
    }
}

// The sum of all lanes in a fixed order: the halves are added until one lane remains.
template <typename T, int run = Vec<T>::width> SIMD_INLINE T sum(Vec<T> a) {
    if constexpr (run == 1) {
        return a.v[0];
    } else {
        return sum<T, run / 2>(add_halves<T, run>(a, a, std::make_integer_sequence<int, Vec<T>::width>()));
    }
}

// Sums the lanes of each of `count` consecutive vectors, in the order of `sum`.
template <typename T> inline void sums(const T* vectors, int64_t count, T* to) {
    constexpr int W = Vec<T>::width;
    int64_t i = 0;
    for (; i + W <= count; i += W) {
        Vec<T> v[W];
        for (int j = 0; j < W; j++) v[j] = Vec<T>::load(vectors + (i + j) * W);
        sums_of<T>(v);
        v[0].store(to + i);
    }
    for (; i < count; i++) to[i] = sum(Vec<T>::load(vectors + i * W));
}

template <typename T, int first, int... lane>
SIMD_INLINE Vec<T> interleaved(Vec<T> a, Vec<T> b, std::integer_sequence<int, lane...>) {
    return Vec<T>(SIMD_SHUFFLE(T, a.v, b.v, (first + lane / 2 + lane % 2 * Vec<T>::width)...));
}
// Interleaves the lower halves of a and b, and their upper halves.
template <typename T> SIMD_INLINE Vec<T> low(Vec<T> a, Vec<T> b) {
    return interleaved<T, 0>(a, b, std::make_integer_sequence<int, Vec<T>::width>());
}
template <typename T> SIMD_INLINE Vec<T> high(Vec<T> a, Vec<T> b) {
    return interleaved<T, Vec<T>::width / 2>(a, b, std::make_integer_sequence<int, Vec<T>::width>());
}

// Transposes `width` vectors in place. Each step moves one bit from the row index to the lane index.
template <typename T> SIMD_INLINE void transpose(Vec<T>* x) {
    constexpr int W = Vec<T>::width;
#pragma GCC unroll 4
    for (int step = 1; step < W; step *= 2) {
        Vec<T> y[W];
#pragma GCC unroll 8
        for (int r = 0; r < W / 2; r++) {
            y[2 * r] = low(x[r], x[r + W / 2]);
            y[2 * r + 1] = high(x[r], x[r + W / 2]);
        }
#pragma GCC unroll 16
        for (int r = 0; r < W; r++) x[r] = y[r];
    }
}

// While an object of this class exists, its thread reads and writes denormals as zero. Decays produce denormals, which
// are slow. Construct one object per thread, inside the parallel region.
class FlushDenormals {
public:
#if defined(__SSE__)
    FlushDenormals() : before(_mm_getcsr()) { _mm_setcsr(before | 0x8040u); }  // FTZ and DAZ
    ~FlushDenormals() { _mm_setcsr(before); }
#elif defined(__aarch64__)
    FlushDenormals() {
        __asm__ volatile("mrs %0, fpcr" : "=r"(before));
        __asm__ volatile("msr fpcr, %0" : : "r"(before | ((uint64_t)1 << 24)));
    }
    ~FlushDenormals() { __asm__ volatile("msr fpcr, %0" : : "r"(before)); }
#else
    FlushDenormals() : before(0) {}
#endif
    FlushDenormals(const FlushDenormals&) = delete;
    FlushDenormals& operator=(const FlushDenormals&) = delete;

private:
#if defined(__aarch64__)
    uint64_t before;
#else
    unsigned before;
#endif
};

}  // namespace simd

#include "simd_math.h"
