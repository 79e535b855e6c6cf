// The backward pass of per_key.h, from the last block to the first. It carries the adjoint of the state.
//
// States and their adjoints are transposed, (V, K), with keys in the lanes, so decays are vector operations:
//     dq = (dy h^T) * from_start + pairs        dk = (v dh^T) * to_end + pairs
//     dv = (k * to_end) dh + M^T dy             dh <- diag(whole) dh + (q * from_start)^T dy
#pragma once

#include "per_key.h"

namespace gated {

template <typename T>
class PerKeyBackward {
public:
    PerKeyBackward(const Inputs<T>& in_, const Gradients<T>& out_)
        : in(in_), out(out_), K(padded<T>(in.K)), V(padded<T>(in.V)), block{KeyBlock<T>(K), KeyBlock<T>(K)},
          partial((PAIRS + 2 * BLOCK) * Vec<T>::width), walks(PAIRS * K), M(BLOCK * BLOCK), dM(BLOCK * BLOCK),
          v(CHUNK * V), dy(BLOCK * V), vT(V * BLOCK), dvT(V * BLOCK), dv(BLOCK * V), k_to_endT(K * BLOCK),
          dq(BLOCK * K), dk(BLOCK * K), entering(BLOCK * K), leaving(BLOCK * K), dlog(BLOCK * K), through(K), dbonus(K),
          natural(K * V), states(BLOCKS * V * K), dstate(V * K) {}

    void run(const Task& task, const T* saved) {
        for (int64_t h = task.first_head; h < task.first_head + task.heads; h++) {
            const int64_t row = task.b * in.H + h, size = in.K * in.V;
            const bool first = h == task.first_head;
            load_state(in, out.dhT == nullptr ? nullptr : out.dhT + row * size, (T*)natural, K, V);
            gemm::transpose((T*)natural, V, K, V, (T*)dstate, K);
            std::memset((void*)(T*)dbonus, 0, K * sizeof(T));
            if (in.decay == CONSTANT) out.dlog_decay[row] = 0;
            for (int64_t c = in.chunks() - 1; c >= 0; c--)
                chunk(task, c * CHUNK, h, in.kept(saved, task.b, h, c), first);
            gemm::transpose((T*)dstate, K, V, K, (T*)natural, V);
            if (out.dh0 != nullptr) gemm::unpack((T*)natural, V, in.K, in.V, out.dh0 + row * size, in.V);
            if (in.bonus != nullptr) gemm::unpack((T*)dbonus, K, 1, in.K, out.dbonus + row * in.K, in.K);
        }
    }

private:
    void chunk(const Task& task, int64_t t0, int64_t h, const T* kept, bool first) {
        const int64_t length = std::min(CHUNK, in.T_ - t0), blocks = (length + BLOCK - 1) / BLOCK;
        load_state(in, kept, (T*)natural, K, V, -in.K * in.V);
        gemm::transpose((T*)natural, V, K, V, (T*)states, K);
        for (int64_t i = 0; i < blocks; i++) {
            const int64_t start = t0 + i * BLOCK, here = std::min(BLOCK, in.T_ - start);
            T* const value = v + i * BLOCK * V;
            block[i].read(in, task.b, start, h, here, -CHUNK);
            const int64_t stride = in.H * in.V;
            const T* from = in.v + in.token(task.b, start) * stride + h * in.V;
            gemm::pack(from, stride, here, in.V, value, BLOCK, V, -CHUNK * stride);
            if (i + 1 < blocks) {
                T* const old = states + i * V * K;
                update(value, V, block[i].k_to_end, block[i].whole, [&](Vec<T> x, Vec<T> whole, int64_t at, int64_t) {
                    simd::fma(whole, Vec<T>::load(old + at), x).store(old + V * K + at);
                });
            }
        }
        for (int64_t i = blocks - 1; i >= 0; i--)
            step(task, t0 + i * BLOCK, h, block[i], states + i * V * K, v + i * BLOCK * V, first);
    }

    // Calls use(x, whole, place, key) for every vector x of left^T right, (V, K), with left (BLOCK, V), right (BLOCK,
    // K).
    template <typename Use>
    SIMD_INLINE void update(const T* left, int64_t left_stride, const T* right, const T* whole, const Use& use) {
        gemm::for_tiles<T>(V, K, [&](auto shape, int64_t i, int64_t j) {
            auto tile = decltype(shape)::Tile::zeros();
            tile.add_product(BLOCK, left + i, 1, left_stride, right + j, K);
            tile.each([&](Vec<T>& x, int r, int64_t lane) {
                use(x, Vec<T>::load(whole + j + lane), (i + r) * K + j + lane, j + lane);
            });
        });
    }

    void step(const Task& task, int64_t t0, int64_t h, const KeyBlock<T>& now, const T* state, const T* value,
              bool first) {
        const int64_t start = (in.token(task.b, t0) * in.H + h) * in.V, stride = in.H * in.V;
        const bool has_bonus = in.bonus != nullptr;
        gemm::pack(out.dy + start, stride, now.length, in.V, (T*)dy, BLOCK, V, -BLOCK * stride);
        now.scores(has_bonus, partial, walks, M);

        gemm::transpose(value, V, BLOCK, V, (T*)vT, BLOCK);
        gemm::for_lower_tiles<T>(BLOCK, [&](auto shape, int64_t i, int64_t j) {
            auto tile = decltype(shape)::Tile::zeros();
            tile.add_product(in.V, dy + i * V, V, 1, vT + j, BLOCK);
            tile.store(dM + i * BLOCK + j, BLOCK);
        });
        for (int64_t t = 0; t < now.length && has_bonus; t++)
            if (now.reset[t]) std::fill_n(dM + t * BLOCK, t, (T)0);

        gemm::transpose((T*)now.k_to_end, K, BLOCK, K, (T*)k_to_endT, BLOCK);
        gemm::for_tiles<T>(V, BLOCK, [&](auto shape, int64_t i, int64_t j) {
            auto tile = decltype(shape)::Tile::zeros();
            tile.add_product(in.K, dstate + i * K, K, 1, k_to_endT + j, BLOCK);
            tile.add_product(BLOCK, dy + i, 1, V, M + j, BLOCK);
            tile.store(dvT + i * BLOCK + j, BLOCK);
        });
        gemm::transpose((T*)dvT, BLOCK, V, BLOCK, (T*)dv, V);
        gemm::unpack((T*)dv, V, now.length, in.V, out.dv + start, stride);

        across(dy, state, now.from_start, now.q, dq, entering);
        across(value, dstate, now.to_end, now.k, dk, leaving);
        std::memset((void*)(T*)through, 0, K * sizeof(T));
        update(dy, V, now.q_from_start, now.whole, [&](Vec<T> x, Vec<T> whole, int64_t at, int64_t n) {
            const Vec<T> before = Vec<T>::load(dstate + at);
            simd::fma(before, Vec<T>::load(state + at), Vec<T>::load(through + n)).store(through + n);
            simd::fma(whole, before, x).store(dstate + at);
        });
        for (int64_t n = 0; n < K; n += Vec<T>::width) {
            has_bonus ? pairs<true>(now, n) : pairs<false>(now, n);
            log_decays(now, n);
        }
        write(task, t0, h, now.length, first);
    }

    // to = left h^T * decay, and dot = to * other, all (BLOCK, K).
    void across(const T* left, const T* h, const T* decay, const T* other, T* to, T* dot) {
        gemm::for_tiles<T>(BLOCK, K, [&](auto shape, int64_t i, int64_t j) {
            auto tile = decltype(shape)::Tile::zeros();
            tile.add_product(in.V, left + i * V, V, 1, h + j, K);
            tile.each([&](Vec<T>& x, int r, int64_t lane) {
                const int64_t at = (i + r) * K + j + lane;
                x *= Vec<T>::load(decay + at);
                x.store(to + at);
                (x * Vec<T>::load(other + at)).store(dot + at);
            });
        });
    }

    // Adds the gradients through pairs within the block to dq, dk and dlog, for the keys n .. n + W. dkey[s] is the
    // adjoint of the decayed key s after step t.
    template <bool BONUS>
    void pairs(const KeyBlock<T>& now, int64_t n) {
        Vec<T> dkey[BLOCK];
#pragma GCC unroll 16
        for (int64_t s = 0; s < BLOCK; s++) dkey[s] = Vec<T>::zero();
        const Vec<T> bonus = BONUS ? Vec<T>::load(now.bonus + n) : Vec<T>((T)1);
#pragma GCC unroll 16
        for (int64_t t = BLOCK - 1; t >= 0; t--) {
            if (t >= now.length) continue;
            const int64_t at = t * K + n;
            const Vec<T> q = Vec<T>::load(now.q + at), k = Vec<T>::load(now.k + at), a = Vec<T>::load(now.step + at);
            const Vec<T> own(dM[t * BLOCK + t]);
            Vec<T> dquery = Vec<T>::zero(), ddecay = Vec<T>::zero();
#pragma GCC unroll 16
            for (int64_t s = 0; s < t; s++) {
                const Vec<T> weight(dM[t * BLOCK + s]);
                const Vec<T> walked = Vec<T>::load(walks + pair(t, s) * K + n);
                if (BONUS) {
                    const Vec<T> read = s == t - 1 ? Vec<T>::load(now.k + s * K + n)
                                                   : Vec<T>::load(walks + pair(t - 1, s) * K + n);  // before this step
                    ddecay = simd::fma(dkey[s], walked, ddecay);
                    dquery = simd::fma(weight, read, dquery);
                    dkey[s] = simd::fma(weight, q, dkey[s] * a);
                } else {
                    dkey[s] = simd::fma(weight, q, dkey[s]);
                    ddecay = simd::fma(dkey[s], walked, ddecay);
                    dquery = simd::fma(weight, walked, dquery);
                    dkey[s] *= a;
                }
            }
            ddecay.store(dlog + at);
            simd::fma(own * bonus, k, dquery + Vec<T>::load(dq + at)).store(dq + at);
            simd::fma(own * bonus, q, dkey[t] + Vec<T>::load(dk + at)).store(dk + at);
            if (BONUS) simd::fma(own * q, k, Vec<T>::load(dbonus + n)).store(dbonus + n);
        }
    }

    // Adds the gradients across the block's borders to dlog.
    void log_decays(const KeyBlock<T>& now, int64_t n) {
        const bool has_bonus = in.bonus != nullptr;
        Vec<T> later = Vec<T>::load(now.whole + n) * Vec<T>::load(through + n), earlier = Vec<T>::zero();
        for (int64_t t = BLOCK - 1; t >= 0; t--) {
            T* const to = dlog + t * K + n;
            const Vec<T> with = later + Vec<T>::load(entering + t * K + n);
            (Vec<T>::load(to) + (has_bonus ? later : with)).store(to);
            later = with;
        }
        for (int64_t t = 0; t < BLOCK; t++) {
            T* const to = dlog + t * K + n;
            (Vec<T>::load(to) + earlier).store(to);
            earlier += Vec<T>::load(leaving + t * K + n);
        }
    }

    void write(const Task& task, int64_t t0, int64_t h, int64_t length, bool first) {
        for (int64_t t = 0; t < length; t++) {
            const int64_t token = in.token(task.b, t0 + t);
            const int64_t at = ((task.part * in.B * in.T_ + token) * in.G + task.group) * in.K;
            add_row(dq + t * K, out.dq + at, first);
            add_row(dk + t * K, out.dk + at, first);
            if (in.decay == VECTOR) {
                gemm::unpack(dlog + t * K, K, 1, in.K, out.dlog_decay + (token * in.H + h) * in.K, in.K);
            } else if (in.decay != NONE) {
                T sum = 0;
                for (int64_t n = 0; n < in.K; n++) sum += dlog[t * K + n];
                if (in.decay == CONSTANT) {
                    out.dlog_decay[task.b * in.H + h] += sum;
                } else {
                    out.dlog_decay[token * in.H + h] = sum;
                }
            }
        }
    }

    // The first head of a task writes the sum. The other heads add to it.
    void add_row(const T* from, T* to, bool first) {
        for (int64_t n = 0; n < in.K; n++) to[n] = first ? from[n] : to[n] + from[n];
    }

    const Inputs<T>& in;
    const Gradients<T>& out;
    const int64_t K, V;  // padded
    KeyBlock<T> block[BLOCKS];
    Buffer<T> partial;  // (PAIRS + BLOCK, W)
    Buffer<T> walks;  // (PAIRS, K)
    Buffer<T> M, dM;  // (BLOCK, BLOCK)
    Buffer<T> v;  // (CHUNK, V)
    Buffer<T> dy;  // (BLOCK, V)
    Buffer<T> vT, dvT;  // (V, BLOCK)
    Buffer<T> dv;  // (BLOCK, V)
    Buffer<T> k_to_endT;  // (K, BLOCK)
    Buffer<T> dq, dk, entering, leaving, dlog;  // (BLOCK, K)
    Buffer<T> through, dbonus;  // (K,)
    Buffer<T> natural;  // (K, V)
    Buffer<T> states, dstate;  // (BLOCKS, V, K) and (V, K): transposed
};

}  // namespace gated
