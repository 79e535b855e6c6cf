// The forward pass of per_head_block.h.
#pragma once

#include "forward.h"
#include "per_head_block.h"

namespace delta {

template <typename T>
class PerHead final : public Forward<T, HeadBlock<T>> {
public:
    PerHead(const Inputs<T>& in_, int64_t width)
        : Forward<T, HeadBlock<T>>(in_, width), reads(2 * TOKENS * V) {}

private:
    using Forward<T, HeadBlock<T>>::in, Forward<T, HeadBlock<T>>::K, Forward<T, HeadBlock<T>>::V;
    using Forward<T, HeadBlock<T>>::slice, Forward<T, HeadBlock<T>>::block;
    using Forward<T, HeadBlock<T>>::state, Forward<T, HeadBlock<T>>::empty;

    void step(int64_t b, int64_t h, T* y, T* saved) override {
        const int64_t t0 = block.span.t0, length = block.span.length;
        T* const kept = saved == nullptr ? nullptr : in.kept_of(saved, b, h, t0) + slice.first;
        block.score();
        fetch(b, h, y, kept);
        for (int64_t half = 0; half < 2 * TOKENS; half += TOKENS) {
            if (empty) {
                std::memset((void*)(reads + half * V), 0, block.rows * V * sizeof(T));
                continue;
            }
            gemm::for_tiles<T>(block.rows, V, [&](auto shape, int64_t i, int64_t j) {
                auto tile = decltype(shape)::Tile::zeros();
                ahead.some();
                tile.add_product(in.K, block.kq + (half + i) * K, K, 1, state + j, V);
                tile.scale_rows(block.from + i);
                tile.store(reads + (half + i) * V + j, V);
            });
        }
        solve(in.head(b, t0, h) * in.V + slice.first, y, kept);
        if (kept != nullptr && slice.first == 0) block.keep(kept + in.V);
        const Vec<T> whole(block.whole);
        gemm::for_tiles<T>(K, V, [&](auto shape, int64_t i, int64_t j) {
            auto tile = decltype(shape)::Tile::zeros();
            ahead.some();
            tile.add_product(length, block.k() + i, 1, K, reads + j, V);
            T* const corner = state + i * V + j;
            if (!empty)
                tile.each([&](Vec<T>& x, int r, int64_t l) {
                    x = simd::fma(whole, Vec<T>::load(corner + r * V + l), x);
                });
            tile.store(corner, V);
        });
    }

    // Prefetches the memory that this block writes, and that the next block reads.
    void fetch(int64_t b, int64_t h, const T* y, const T* kept) {
        const int64_t t0 = block.span.t0, key = in.group(b, t0 + TOKENS, h) * in.K;
        const int64_t head = in.head(b, t0, h) * in.V + slice.first;
        const int64_t keys = in.G * in.K, stride = in.H * in.V;
        ahead.start();
        ahead.add(y + head, stride, TOKENS, slice.columns);
        if (kept != nullptr) ahead.add(kept, in.kept_row(), TOKENS, in.kept_row() - slice.first);
        ahead.add(in.k + key, keys, TOKENS, in.K);
        ahead.add(in.q + key, keys, TOKENS, in.K);
        ahead.add(in.v + head + TOKENS * stride, stride, TOKENS, slice.columns);
    }

    // Computes r, y and x from their reads of the state, only for the span's tokens, so an infinite value does not
    // reach earlier tokens. `start`: offset of v and y.
    void solve(int64_t start, T* y_out, T* kept) {
        const int64_t length = block.span.length, stride = in.H * in.V;
        simd::for_each_vector<T>(slice.columns, [&](int64_t n, auto lanes) {
            Vec<T> x[TOKENS];
#pragma GCC unroll 16
            for (int64_t j = 0; j < TOKENS; j++) {
                if (j >= length) break;
                const int64_t at = j * V + n;
                const T *const m = block.pairs + j * TOKENS, *const mine = m + TOKENS * TOKENS;
                Vec<T> r = Vec<T>::load(reads + at), y = Vec<T>::load(reads + TOKENS * V + at);
#pragma GCC unroll 16
                for (int64_t i = 0; i < j; i++) {
                    r = simd::fma(Vec<T>(m[i]), x[i], r);
                    y = simd::fma(Vec<T>(mine[i]), x[i], y);
                }
                const Vec<T> error = lanes.load(in.v + start + j * stride + n) - r;
                x[j] = Vec<T>(block.beta[j]) * error;
                lanes.store(y_out + start + j * stride + n, simd::fma(Vec<T>(mine[j]), x[j], y));
                if (kept != nullptr) lanes.store(kept + j * in.kept_row() + n, error);
                (Vec<T>(block.to[j]) * x[j]).store(reads + at);
            }
        });
    }

    Buffer<T> reads;  // (2 TOKENS, V): reads of the state for r and y; later x decayed to the end in place of r
    simd::Ahead ahead;
};

}  // namespace delta
