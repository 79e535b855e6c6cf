// Shared by both algorithms of the gated scan: the inputs and the clamped log decays.
#pragma once

#include "gemm.h"
#include "tasks.h"

namespace gated {

using gemm::Buffer;
using gemm::Tile;
using gemm::padded;
using simd::Vec;
using tasks::Task;

constexpr int64_t CHUNK = 32;  // tokens between saved states

enum Decay : int64_t { NONE, CONSTANT, SCALAR, VECTOR };  // (), (H,), (B, T, H), (B, T, H, K)

// exp of this value and of its sums is 0. Unlike -inf, its product with 0 is not NaN.
template <typename T>
constexpr T FORGET = -1000;

template <typename T>
struct Inputs {
    const T *q, *k;            // (B, T, G, K)
    const T* v;                // (B, T, H, V)
    const T* log_decay;        // see Decay
    const T* h0;               // (B, H, K, V), or null: zeros
    const T* bonus;            // (H, K), or null
    const unsigned char* resets;  // (B, T), or null
    int64_t decay;
    int64_t B, T_, G, H, K, V;

    int64_t chunks() const { return (T_ + CHUNK - 1) / CHUNK; }
    int64_t sharing() const { return H / G; }  // heads per group
    int64_t token(int64_t b, int64_t t) const { return b * T_ + t; }
    const T* state0(int64_t b, int64_t h) const { return h0 == nullptr ? nullptr : h0 + (b * H + h) * K * V; }
    // The saved state before chunk c, in (B, H, kept, K, V). Null (zeros) for a first chunk without h0.
    template <typename P>
    P* kept(P* saved, int64_t b, int64_t h, int64_t c) const {
        const int64_t unkept = h0 == nullptr;
        return c < unkept ? nullptr : saved + ((b * H + h) * (chunks() - unkept) + c - unkept) * K * V;
    }
    bool reset(int64_t b, int64_t t) const { return resets != nullptr && resets[token(b, t)]; }
    // The log decay of a head at a step, for all kinds except VECTOR.
    T log_decay_of(int64_t b, int64_t t, int64_t h) const {
        if (reset(b, t)) return FORGET<T>;
        if (decay == NONE) return 0;
        const T value = log_decay[decay == CONSTANT ? h : token(b, t) * H + h];
        return value < FORGET<T> ? FORGET<T> : value;  // this comparison preserves NaN
    }
};

template <typename T>
struct Gradients {
    const T *dy, *dhT;     // gradients of the outputs; dhT may be null: zeros
    T *dq, *dk;            // (parts, B, T, G, K): one for every part of a group's heads
    T *dv, *dh0;
    T* dlog_decay;         // shape of log_decay, but (B, H) for (H,)
    T* dbonus;             // (B, H, K)
};

// The state in a padded buffer.
template <typename T>
void load_state(const Inputs<T>& in, const T* state, T* to, int64_t rows, int64_t columns) {
    if (state == nullptr) {
        std::memset((void*)to, 0, rows * columns * sizeof(T));
    } else {
        gemm::pack(state, in.V, in.K, in.V, to, rows, columns);
    }
}

// A vector with ones in the first n lanes (n <= 0: none; n >= W: all), and a vector with a one only in lane n.
template <typename T>
struct Lanes {
    static constexpr int64_t W = Vec<T>::width;
    alignas(64) T steps[3 * W], unit[3 * W];
    Lanes() {
        for (int64_t i = 0; i < 3 * W; i++) steps[i] = i < W, unit[i] = i == W;
    }
    SIMD_INLINE Vec<T> below(int64_t n) const { return Vec<T>::load(steps + W - std::min(W, std::max<int64_t>(n, 0))); }
    SIMD_INLINE Vec<T> at(int64_t n) const { return n < 0 || n >= W ? Vec<T>::zero() : Vec<T>::load(unit + W - n); }
};

}  // namespace gated
