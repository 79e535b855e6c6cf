// The backward pass of per_head.h, from the last chunk to the first. It carries the adjoint of the state.
//
// With G = D * (dy v^T) (0 for s > t), summed over heads into the group's dS, and dh the adjoint of the next state:
//     dq = diag(from_start) dy h^T + dS k       dk = diag(to_end) v dh^T + dS^T q
//     dv = diag(to_end) k dh + (D * S)^T dy     dh <- whole dh + q^T diag(from_start) dy
// The first terms of dq and dk are computed transposed, with tokens in the lanes. Then scaling by a decay, and the dot
// products for the gradient of the log decays, are vector operations. Products with zero are skipped: h in a first
// chunk without h0 (which needs no dh), and dh in a last chunk if the last state has no gradient.
#pragma once

#include "per_head.h"

namespace gated {

template <typename T>
class PerHeadBackward {
public:
    PerHeadBackward(const Inputs<T>& in_, const Gradients<T>& out_, int64_t heads)
        : in(in_), out(out_), K(padded<T>(in.K)), V(padded<T>(in.V)), group(K), qT(K * CHUNK), dqT(K * CHUNK),
          dkT(K * CHUNK), sum(CHUNK * K), between(CHUNK * CHUNK), weights(CHUNK * CHUNK), dweights(CHUNK * CHUNK),
          dscores(CHUNK * CHUNK), v(CHUNK * V), dy(CHUNK * V), dy_from_start(CHUNK * V),
          vT(V * CHUNK), dyT(V * CHUNK), dv(CHUNK * V), state(K * V), dstates(heads * K * V) {}

    void run(const Task& task, const T* saved) {
        const int64_t chunks = in.chunks();
        for (int64_t i = 0; i < task.heads; i++) {
            const int64_t h = task.b * in.H + task.first_head + i;
            load_state(in, out.dhT == nullptr ? nullptr : out.dhT + h * in.K * in.V, dstates + i * K * V, K, V);
            if (in.decay == CONSTANT) out.dlog_decay[h] = 0;
        }
        for (int64_t c = chunks - 1; c >= 0; c--) {
            const int64_t t0 = c * CHUNK, length = std::min(CHUNK, in.T_ - t0), rows = padded<T>(length);
            const bool carried = c > 0 || in.h0 != nullptr, followed = c + 1 < chunks || out.dhT != nullptr;
            group.read(in, task.b, t0, task.group, length, rows);
            gemm::transpose((T*)group.q, K, rows, K, (T*)qT, CHUNK);
            for (T* buffer : {(T*)dqT, (T*)dkT}) std::memset((void*)buffer, 0, K * CHUNK * sizeof(T));
            std::memset((void*)(T*)dscores, 0, CHUNK * CHUNK * sizeof(T));
            for (int64_t i = 0; i < task.heads; i++) {
                const int64_t h = task.first_head + i;
                if (carried) load_state(in, in.kept(saved, task.b, h, c), (T*)state, K, V);
                fetch(task, c, h, saved);
                head(task.b, t0, h, length, rows, carried, followed, dstates + i * K * V);
            }
            const int64_t start = (((task.part * in.B + task.b) * in.T_ + t0) * in.G + task.group) * in.K;
            finish(dqT, dscores, CHUNK, 1, group.k, true, length, rows, out.dq + start);
            finish(dkT, dscores, 1, CHUNK, group.q, false, length, rows, out.dk + start);
        }
        for (int64_t i = 0; i < task.heads && out.dh0 != nullptr; i++) {
            T* to = out.dh0 + (task.b * in.H + task.first_head + i) * in.K * in.V;
            gemm::unpack(dstates + i * K * V, V, in.K, in.V, to, in.V);
        }
    }

private:
    // Lists the memory that chunk c writes, and that the chunk before it reads.
    void fetch(const Task& task, int64_t c, int64_t h, const T* saved) {
        const int64_t start = (in.token(task.b, c * CHUNK) * in.H + h) * in.V, stride = in.H * in.V;
        ahead.start();
        ahead.add(out.dv + start, stride, CHUNK, in.V);
        if (c == 0) return;
        const int64_t before = start - CHUNK * stride;
        const T* const kept = in.kept(saved, task.b, h, c - 1);
        ahead.add(in.v + before, stride, CHUNK, in.V);
        ahead.add(out.dy + before, stride, CHUNK, in.V);
        if (h == task.first_head) group.fetch(in, task.b, (c - 1) * CHUNK, task.group, ahead);
        if (kept != nullptr) ahead.add(kept, in.V, in.K, in.V);
    }

    void head(int64_t b, int64_t t0, int64_t h, int64_t length, int64_t rows, bool carried, bool followed, T* dstate) {
        constexpr int64_t W = Vec<T>::width;
        const int64_t start = (in.token(b, t0) * in.H + h) * in.V, stride = in.H * in.V;
        decays.read(in, b, t0, h, length);
        decays.pairs(rows, group.scores, between, weights);
        gemm::pack(in.v + start, stride, length, in.V, (T*)v, rows, V);
        pack_scaled(out.dy + start, stride, length, in.V, decays.from_start, (T*)dy, (T*)dy_from_start, rows, V);
        gemm::transpose((T*)v, V, rows, V, (T*)vT, CHUNK);
        gemm::transpose((T*)dy, V, rows, V, (T*)dyT, CHUNK);

        alignas(64) T crossing[CHUNK], entering[CHUNK] = {}, leaving[CHUNK] = {};  // terms of the log decays' gradients
        gemm::for_lower_tiles<T>(rows, [&](auto shape, int64_t i, int64_t j) {
            auto tile = decltype(shape)::Tile::zeros();
            ahead.some();
            tile.add_product(in.V, dy + i * V, V, 1, vT + j, CHUNK);
            tile.store(dweights + i * CHUNK + j, CHUNK);
        });
        pairs(rows, crossing);
        if (carried) across(rows, state, dyT, decays.from_start, qT, dqT, entering);
        if (followed) across(rows, dstate, vT, decays.to_end, group.kT, dkT, leaving);

        const bool direct = rows == length && V == in.V;
        T* const to = direct ? out.dv + start : (T*)dv;
        const int64_t to_stride = direct ? stride : V;
        gemm::for_tiles<T>(rows, V, [&](auto shape, int64_t i, int64_t j) {
            auto tile = decltype(shape)::Tile::zeros();
            ahead.some();
            if (followed) {
                tile.add_product(in.K, group.k + i * K, K, 1, dstate + j, V);
                tile.scale_rows(decays.to_end + i);
            }
            tile.add_product(length - i, weights + i * CHUNK + i, 1, CHUNK, dy + i * V + j, V);
            tile.store(to + i * to_stride + j, to_stride);
        });
        if (!direct) gemm::unpack((T*)dv, V, length, in.V, out.dv + start, stride);

        Vec<T> through = Vec<T>::zero();
        const Vec<T> whole(decays.whole);
        gemm::for_tiles<T>(carried ? K : 0, V, [&](auto shape, int64_t i, int64_t j) {
            auto tile = decltype(shape)::Tile::zeros();
            ahead.some();
            tile.add_product(length, group.q + i, 1, K, dy_from_start + j, V);
            T *const corner = dstate + i * V + j, *const other = state + i * V + j;
            tile.each([&](Vec<T>& x, int r, int64_t l) {
                const Vec<T> before = Vec<T>::load(corner + r * V + l);
                through = simd::fma(before, Vec<T>::load(other + r * V + l), through);
                simd::fma(whole, before, x).store(corner + r * V + l);
            });
        });
        static_assert(CHUNK % W == 0, "chunks are whole vectors");
        log_decays(b, t0, h, length, crossing, entering, leaving, decays.whole * simd::sum(through));
    }

    // Adds G = D * dweights to dscores, and computes for every u the sum of G * S over s < u <= t.
    void pairs(int64_t rows, T* crossing) {
        constexpr int64_t W = Vec<T>::width;
        alignas(64) T partial[CHUNK * W] = {};  // (u, lane)
        for (int64_t j = 0; j < rows; j += W) {
            Vec<T> column = Vec<T>::zero();  // over t >= u
            for (int64_t u = rows - 1; u >= j; u--) {
                const int64_t at = u * CHUNK + j;
                const Vec<T> decayed = Vec<T>::load(between + at) * Vec<T>::load(dweights + at);
                (Vec<T>::load(dscores + at) + decayed).store(dscores + at);
                column = simd::fma(decayed, Vec<T>::load(group.scores + at), column);
                simd::fma(column, decays.lanes.below(u - j), Vec<T>::load(partial + u * W)).store(partial + u * W);
            }
        }
        simd::sums(partial, CHUNK, crossing);
    }

    // x = h r diag(decay), with tokens in the lanes. Adds x to `total`, and sum_n x[n, t] other[n, t] to dot[t].
    void across(int64_t rows, const T* h, const T* right, const T* decay, const T* other, T* total, T* dot) {
        gemm::for_tiles<T>(K, rows, [&](auto shape, int64_t i, int64_t j) {
            auto tile = decltype(shape)::Tile::zeros();
            ahead.some();
            tile.add_product(in.V, h + i * V, V, 1, right + j, CHUNK);
            constexpr int vectors = shape.vectors;
            Vec<T> scale[vectors], sums[vectors];
            for (int l = 0; l < vectors; l++) {
                scale[l] = Vec<T>::load(decay + j + l * Vec<T>::width);
                sums[l] = Vec<T>::load(dot + j + l * Vec<T>::width);
            }
            tile.each([&](Vec<T>& x, int r, int64_t lane) {
                const int64_t at = (i + r) * CHUNK + j + lane;
                const int l = lane / Vec<T>::width;
                x *= scale[l];
                sums[l] = simd::fma(x, Vec<T>::load(other + at), sums[l]);
                (x + Vec<T>::load(total + at)).store(total + at);
            });
            for (int l = 0; l < vectors; l++) sums[l].store(dot + j + l * Vec<T>::width);
        });
    }

    void log_decays(int64_t b, int64_t t0, int64_t h, int64_t length, const T* crossing, const T* entering,
                    const T* leaving, T through) {
        if (in.decay == NONE) return;
        T gradient[CHUNK], later = 0, earlier = 0, total = 0;
        for (int64_t u = length - 1; u >= 0; u--) {
            later += entering[u];
            gradient[u] = crossing[u] + through + later;
        }
        for (int64_t u = 0; u < length; u++) {
            gradient[u] += earlier;
            earlier += leaving[u];
            total += gradient[u];
        }
        if (in.decay == CONSTANT) {
            out.dlog_decay[b * in.H + h] += total;
        } else {
            for (int64_t u = 0; u < length; u++) out.dlog_decay[in.token(b, t0 + u) * in.H + h] = gradient[u];
        }
    }

    // to = transposed^T + dS x, or dS^T x: for dq (s <= t, `lower`) and for dk (t >= s).
    void finish(const T* transposed, const T* scores, int64_t row, int64_t column, const T* x, bool lower,
                int64_t length, int64_t rows, T* to) {
        gemm::transpose(transposed, CHUNK, K, rows, (T*)sum, K);
        gemm::for_tiles<T>(rows, K, [&](auto shape, int64_t i, int64_t j) {
            const int64_t from = lower ? 0 : i, end = lower ? std::min(i + shape.rows, length) : length;
            auto tile = decltype(shape)::Tile::load(sum + i * K + j, K);
            tile.add_product(end - from, scores + i * row + from * column, row, column, x + from * K + j, K);
            tile.store(sum + i * K + j, K);
        });
        gemm::unpack((T*)sum, K, length, in.K, to, in.G * in.K);
    }

    const Inputs<T>& in;
    const Gradients<T>& out;
    const int64_t K, V;  // padded
    Decays<T> decays;
    Group<T> group;
    Buffer<T> qT, dqT, dkT;  // (K, CHUNK)
    Buffer<T> sum;  // (CHUNK, K)
    Buffer<T> between, weights, dweights, dscores;  // (CHUNK, CHUNK), zero in vectors above the diagonal
    Buffer<T> v, dy, dy_from_start;  // (CHUNK, V)
    Buffer<T> vT, dyT;  // (V, CHUNK)
    Buffer<T> dv;  // (CHUNK, V)
    Buffer<T> state;  // (K, V)
    Buffer<T> dstates;  // (heads, K, V)
    simd::Ahead ahead;
};

}  // namespace gated
