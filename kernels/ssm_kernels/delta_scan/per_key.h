// The forward pass of per_key_block.h. The formulas are in that file.
#pragma once

#include "forward.h"
#include "per_key_block.h"

namespace delta {

template <typename T>
class PerKey final : public Forward<T, KeyBlock<T>> {
public:
    PerKey(const Inputs<T>& in_, int64_t width)
        : Forward<T, KeyBlock<T>>(in_, width), reads(2 * BLOCK * V), values(block.writes * V),
          own_v(in.delta_rule() ? BLOCK * V : 0), v(in.delta_rule() ? (T*)own_v : values + BLOCK * V) {}

private:
    using Forward<T, KeyBlock<T>>::in, Forward<T, KeyBlock<T>>::K, Forward<T, KeyBlock<T>>::V;
    using Forward<T, KeyBlock<T>>::slice, Forward<T, KeyBlock<T>>::block;
    using Forward<T, KeyBlock<T>>::state, Forward<T, KeyBlock<T>>::empty;

    void step(int64_t b, int64_t h, T* y, T* saved) override {
        const int64_t t0 = block.span.t0, length = block.span.length;
        const int64_t start = in.head(b, t0, h) * in.V + slice.first, stride = in.H * in.V, columns = slice.columns;
        gemm::pack(in.v + start, stride, length, columns, (T*)v, BLOCK, V, block.ahead * stride);
        block.score();
        if (empty) {
            std::memset((void*)reads, 0, 2 * BLOCK * V * sizeof(T));
        } else {
            product<T>(2 * BLOCK, V, in.K, block.from_start, K, 1, state, reads);
        }
        in.delta_rule() ? solve<true>(b, h) : solve<false>(b, h);
        if (saved != nullptr)
            gemm::unpack((T*)reads, V, length, columns, in.kept_of(saved, b, h, t0) + slice.first, in.V);
        gemm::unpack(reads + BLOCK * V, V, length, columns, y + start, stride);
        gemm::for_tiles<T>(K, V, [&](auto shape, int64_t i, int64_t j) {
            typedef typename decltype(shape)::Tile Tile;
            Tile tile = Tile::zeros();
            tile.add_product(block.writes, block.to_end + i, 1, K, values + j, V);
            if (!empty)
                tile.each([&](Vec<T>& x, int row, int64_t lane) {
                    const Vec<T> before = Vec<T>::load(state + (i + row) * V + j + lane);
                    x = simd::fma(Vec<T>(block.whole_of(i + row)), before, x);
                });
            tile.store(state + i * V + j, V);
        });
    }

    // Computes r, y and the written values from the reads of the state, only for the span's tokens, so an infinite
    // value does not reach earlier tokens.
    template <bool DELTA>
    void solve(int64_t b, int64_t h) {
        constexpr int64_t COLUMNS = DELTA ? BLOCK : 2 * BLOCK;
        const int64_t length = block.span.length;
        T beta[BLOCK] = {};
        for (int64_t j = 0; DELTA && j < length; j++) beta[j] = in.beta[in.head(b, block.span.t0 + j, h)];
        for (int64_t n = 0; n < V; n += Vec<T>::width) {
            Vec<T> x[COLUMNS];
#pragma GCC unroll 8
            for (int64_t j = 0; j < BLOCK; j++) {
                if (j >= length) {
                    x[j] = Vec<T>::zero();
                    x[j].store(values + j * V + n);
                    continue;
                }
                T* const read = reads + j * V + n;
                T* const out = read + BLOCK * V;
                const T* const m = block.M + j * COLUMNS;
                Vec<T> r = Vec<T>::load(read);
#pragma GCC unroll 8
                for (int64_t i = 0; i < j; i++) {
                    if (!DELTA) r = simd::fma(Vec<T>(m[BLOCK + i]), x[BLOCK + i], r);
                    r = simd::fma(Vec<T>(m[i]), x[i], r);
                }
                const Vec<T> value = Vec<T>::load(v + j * V + n), kept = DELTA ? value - r : r;
                kept.store(read);
                x[j] = DELTA ? Vec<T>(beta[j]) * kept : r;
                x[j].store(values + j * V + n);
                if (!DELTA) x[BLOCK + j] = value;
                Vec<T> y = Vec<T>::load(out);
                const T* const mine = m + BLOCK * COLUMNS;
#pragma GCC unroll 8
                for (int64_t i = 0; i <= j; i++) {
                    y = simd::fma(Vec<T>(mine[i]), x[i], y);
                    if (!DELTA) y = simd::fma(Vec<T>(mine[BLOCK + i]), x[BLOCK + i], y);
                }
                y.store(out);
            }
        }
    }

    Buffer<T> reads;   // (2 BLOCK, V): r, y
    Buffer<T> values;  // (writes, V): x
    Buffer<T> own_v;
    T* const v;  // (BLOCK, V): separate for the delta rule, otherwise the second half of `values`
};

}  // namespace delta
