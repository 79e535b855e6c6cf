// Shared by the passes of the delta scan: the inputs, the split of a sequence into blocks, and matrix products.
#pragma once

#include "gemm.h"
#include "lanes.h"
#include "tasks.h"

namespace delta {

using gemm::Buffer;
using gemm::padded;
using simd::Vec;
using tasks::Task;

constexpr int64_t CHUNK = 64;   // tokens between saved states
constexpr int64_t BLOCK = 8;    // tokens that are solved together for decays per key: the rows of a tile
constexpr int64_t TOKENS = 16;  // the same for decays per head, where pairs cost less

enum Decay : int64_t { NONE, HEAD, KEY };  // (), (B, T, H), (B, T, H, K)

// Tokens of one chunk that are solved together. Only the first token can be a reset.
struct Span {
    int64_t t0, length;
    bool reset;
};

template <typename T>
struct Inputs {
    const T *q, *k;               // (B, T, G, K)
    const T* v;                   // (B, T, H, V)
    const T* beta;                // (B, T, H), or null: the generalized form, with
    const T *a, *b;               // (B, T, H, K), or null
    const T* log_decay;           // see Decay
    const T* h0;                  // (B, H, K, V), or null: zeros
    const unsigned char* resets;  // (B, T), or null
    int64_t decay;
    int64_t B, T_, G, H, K, V;

    bool delta_rule() const { return beta != nullptr; }
    bool by_head() const { return delta_rule() && decay != KEY; }  // per_head_block.h, otherwise per_key_block.h
    int64_t writes() const { return delta_rule() ? 1 : 2; }  // number of keys that a step writes along
    int64_t sharing() const { return H / G; }                // heads per group
    int64_t token(int64_t b, int64_t t) const { return b * T_ + t; }
    int64_t head(int64_t b, int64_t t, int64_t h) const { return token(b, t) * H + h; }  // in (B, T, H)
    int64_t group(int64_t b, int64_t t, int64_t h) const { return token(b, t) * G + h / sharing(); }  // in (B, T, G)
    bool reset(int64_t b, int64_t t) const { return resets != nullptr && resets[token(b, t)]; }
    Span span(int64_t b, int64_t t0, int64_t most) const {
        const int64_t end = std::min({t0 + most, t0 / CHUNK * CHUNK + CHUNK, T_});
        int64_t t = t0 + 1;
        while (t < end && !reset(b, t)) t++;
        return {t0, t - t0, reset(b, t0)};
    }

    // Saved for the backward pass, head by head: the states before all chunks except the first (h0 or zeros). Also a
    // row per step: r, or v - r for the delta rule, and for decays per head its pairs.
    int64_t kept() const { return (T_ - 1) / CHUNK; }
    int64_t kept_row() const { return V + (by_head() ? 2 * TOKENS : 0); }
    int64_t kept_by_head() const { return kept() * K * V + T_ * kept_row(); }
    template <typename P>
    P* kept_state(P* saved, int64_t b, int64_t h, int64_t chunk) const {
        return saved + (b * H + h) * kept_by_head() + (chunk - 1) * K * V;
    }
    // The state before a chunk. Null means zeros.
    const T* state_of(const T* saved, int64_t b, int64_t h, int64_t chunk) const {
        if (chunk > 0) return kept_state(saved, b, h, chunk);
        return h0 == nullptr ? nullptr : h0 + (b * H + h) * K * V;
    }
    template <typename P>
    P* kept_of(P* saved, int64_t b, int64_t h, int64_t t) const {
        return saved + (b * H + h) * kept_by_head() + kept() * K * V + t * kept_row();
    }
};

// Some columns of the values of a head. The forward pass computes every column by itself.
struct Slice {
    int64_t first, columns;
};

template <typename T>
struct Gradients {
    const T *dy, *dhT;  // gradients of the outputs; dhT may be null: zeros
    T *dq, *dk;         // (parts, B, T, G, K): one for every part of a group's heads
    T *dv, *dbeta, *dlog_decay, *dh0, *da, *db;  // null for absent inputs
};

// A row of a gradient. The first contribution writes it, and others add to it.
template <typename T>
void add_row(const T* from, T* to, int64_t columns, bool first) {
    simd::for_each_vector<T>(columns, [&](int64_t n, auto lanes) {
        const Vec<T> x = Vec<T>::load(from + n);
        lanes.store(to + n, first ? x : x + lanes.load(to + n));
    });
}

// to (rows, columns) = A B. A is (rows, n) with (i, k) at a[i * row + k * column]. B and `to` have `columns` columns.
// Rows and columns are padded.
template <typename T>
void product(int64_t rows, int64_t columns, int64_t n, const T* a, int64_t row, int64_t column, const T* b, T* to) {
    gemm::for_tiles<T>(rows, columns, [&](auto shape, int64_t i, int64_t j) {
        typedef typename decltype(shape)::Tile Tile;
        Tile tile = Tile::zeros();
        tile.add_product(n, a + i * row, row, column, b + j, columns);
        tile.store(to + i * columns + j, columns);
    });
}

// M (2 BLOCK, stride) = inner products of `readers` (2 BLOCK, N) with `writers` (BLOCK, N), both in rows of whole
// vectors: row j of the first half with every row i < j, row j of the second half with every row i <= j. With WALK, a
// writer is multiplied by `step` (BLOCK, N) of every row after its own, in the first half up to row j - 1, in the
// second half up to row j. Elements above the diagonals are not written.
template <typename T, bool WALK>
class InnerProducts {
public:
    static void run(const T* readers, const T* writers, const T* step, int64_t N, T* M, int64_t stride) {
        alignas(64) T partial[COUNT * W], sums[COUNT];
        each(readers, writers, step, N, partial, std::make_integer_sequence<int, BLOCK>());
        simd::sums(partial, COUNT, sums);
        const T* next = sums;
        for (int64_t i = 0; i < BLOCK; i++) {
            for (int64_t j = i; j < BLOCK; j++) M[(BLOCK + j) * stride + i] = *next++;
            for (int64_t j = i + 1; j < BLOCK; j++) M[j * stride + i] = *next++;
        }
    }

private:
    static constexpr int64_t W = Vec<T>::width, COUNT = BLOCK * BLOCK;

    template <int... I>
    static void each(const T* readers, const T* writers, const T* step, int64_t N, T* partial,
                     std::integer_sequence<int, I...>) {
        ((partial = of_writer<I>(readers, writers + I * N, step, N, partial)), ...);
    }
    template <int I>
    static T* of_writer(const T* readers, const T* writer, const T* step, int64_t N, T* partial) {
        Vec<T> first[BLOCK], second[BLOCK];
#pragma GCC unroll 8
        for (int j = I; j < BLOCK; j++) first[j] = second[j] = Vec<T>::zero();
        for (int64_t n = 0; n < N; n += W) {
            Vec<T> walked = Vec<T>::load(writer + n);
            second[I] = simd::fma(Vec<T>::load(readers + (BLOCK + I) * N + n), walked, second[I]);
#pragma GCC unroll 8
            for (int j = I + 1; j < BLOCK; j++) {
                first[j] = simd::fma(Vec<T>::load(readers + j * N + n), walked, first[j]);
                if (WALK) walked *= Vec<T>::load(step + j * N + n);
                second[j] = simd::fma(Vec<T>::load(readers + (BLOCK + j) * N + n), walked, second[j]);
            }
        }
#pragma GCC unroll 8
        for (int j = I; j < BLOCK; j++, partial += W) second[j].store(partial);
#pragma GCC unroll 8
        for (int j = I + 1; j < BLOCK; j++, partial += W) first[j].store(partial);
        return partial;
    }
};

}  // namespace delta
