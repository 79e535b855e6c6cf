// The backward pass of per_key.h, from the last block to the first. It carries the adjoint of the state.
//
// States and their adjoints are transposed, (V, K), with keys in the lanes, so decays are vector operations:
//     dq = (dy h^T) * from_start + pairs        dk = (v dh^T) * to_end + pairs
//     dv = (k * to_end) dh + M^T dy             dh <- diag(whole) dh + (q * from_start)^T dy
// Products with zero are skipped, as in per_head_backward.h.
#pragma once

#include <type_traits>

#include "per_key.h"

namespace gated {

template <typename T>
class PerKeyBackward {
public:
    PerKeyBackward(const Inputs<T>& in_, const Gradients<T>& out_)
        : in(in_), out(out_), K(padded<T>(in.K)), V(padded<T>(in.V)), block{KeyBlock<T>(K), KeyBlock<T>(K)},
          M(BLOCK * BLOCK), dM(BLOCK * BLOCK), v(CHUNK * V), dy(BLOCK * V), dvT(V * BLOCK), dv(BLOCK * V),
          k_to_endT(K * BLOCK), dq(BLOCK * K), dk(BLOCK * K), dlog(BLOCK * K), through(K), crossing(2 * K), dbonus(K),
          natural(K * V), states(BLOCKS * V * K), dstate(V * K) {}

    void run(const Task& task, const T* saved) {
        for (int64_t h = task.first_head; h < task.first_head + task.heads; h++) {
            const int64_t row = task.b * in.H + h, size = in.K * in.V;
            const bool first = h == task.first_head;
            load_transposed(out.dhT == nullptr ? nullptr : out.dhT + row * size, dstate);
            std::memset((void*)(T*)dbonus, 0, K * sizeof(T));
            if (in.decay == CONSTANT) out.dlog_decay[row] = 0;
            for (int64_t c = in.chunks() - 1; c >= 0; c--)
                chunk(task, c, h, saved, first);
            if (out.dh0 != nullptr) {
                gemm::transpose((T*)dstate, K, V, K, (T*)natural, V);
                gemm::unpack((T*)natural, V, in.K, in.V, out.dh0 + row * size, in.V);
            }
            if (in.bonus != nullptr) gemm::unpack((T*)dbonus, K, 1, in.K, out.dbonus + row * in.K, in.K);
        }
    }

private:
    void chunk(const Task& task, int64_t c, int64_t h, const T* saved, bool first) {
        const int64_t t0 = c * CHUNK, length = std::min(CHUNK, in.T_ - t0), blocks = (length + BLOCK - 1) / BLOCK;
        const T* const kept_before = c == 0 ? nullptr : in.kept(saved, task.b, h, c - 1);
        load_transposed(in.kept(saved, task.b, h, c), states);
        for (int64_t i = 0; i < blocks; i++) {
            const int64_t start = t0 + i * BLOCK, here = std::min(BLOCK, in.T_ - start);
            T* const value = v + i * BLOCK * V;
            block[i].read(in, task.b, start, h, here);
            const int64_t stride = in.H * in.V;
            const T* from = in.v + in.token(task.b, start) * stride + h * in.V;
            gemm::pack(from, stride, here, in.V, value, BLOCK, V);
            if (i + 1 < blocks) {
                T* const old = states + i * V * K;
                update(value, block[i].k_to_end, [&](auto& tile, int64_t row, int64_t n) {
                    tile.each([&](Vec<T>& x, int r, int64_t lane) {
                        const int64_t at = (row + r) * K + n + lane;
                        const Vec<T> whole = Vec<T>::load(block[i].whole + n + lane);
                        simd::fma(whole, Vec<T>::load(old + at), x).store(old + V * K + at);
                    });
                });
            }
        }
        for (int64_t i = blocks - 1; i >= 0; i--) {
            const int64_t start = t0 + i * BLOCK;
            const bool carried = start > 0 || in.h0 != nullptr, followed = start + BLOCK < in.T_ || out.dhT != nullptr;
            fetch(block[i], task, start, h);
            if (i == 0 && kept_before != nullptr) ahead.add(kept_before, in.V, in.K, in.V);
            step(task, start, h, block[i], states + i * V * K, v + i * BLOCK * V, carried, followed, first);
        }
    }

    // The transposed state, padded.
    void load_transposed(const T* state, T* to) {
        if (state == nullptr) {
            std::memset((void*)to, 0, V * K * sizeof(T));
        } else {
            load_state(in, state, (T*)natural, K, V);
            gemm::transpose((T*)natural, V, K, V, to, K);
        }
    }

    // Calls use(tile, i, j) for every tile of left^T right, (V, K), with left (BLOCK, V) and right (BLOCK, K).
    template <typename Use>
    SIMD_INLINE void update(const T* left, const T* right, const Use& use) {
        gemm::for_tiles<T>(V, K, [&](auto shape, int64_t i, int64_t j) {
            auto tile = decltype(shape)::Tile::zeros();
            ahead.some();
            tile.add_product(BLOCK, left + i, 1, V, right + j, K);
            use(tile, i, j);
        });
    }

    // Adds up[l] to the vectors at `to`.
    template <size_t N>
    SIMD_INLINE static void add(const Vec<T> (&up)[N], T* to) {
        for (size_t l = 0; l < N; l++, to += Vec<T>::width) (Vec<T>::load(to) + up[l]).store(to);
    }

    void step(const Task& task, int64_t t0, int64_t h, const KeyBlock<T>& now, const T* state, const T* value,
              bool carried, bool followed, bool first) {
        const int64_t start = (in.token(task.b, t0) * in.H + h) * in.V, stride = in.H * in.V;
        const bool has_bonus = in.bonus != nullptr;
        gemm::pack(out.dy + start, stride, now.length, in.V, (T*)dy, BLOCK, V);
        now.scores(has_bonus, M);
        for (int64_t t = 0; t < BLOCK; t += HALF)
            pair_products<T, LOWER>(dy + t * V, value + t * V, nullptr, nullptr, V, dM + t * BLOCK + t, BLOCK);
        pair_products<T, ALL>(dy + HALF * V, value, nullptr, nullptr, V, dM + HALF * BLOCK, BLOCK);
        now.clear_resets(has_bonus, dM);

        gemm::transpose((T*)now.k_to_end, K, BLOCK, K, (T*)k_to_endT, BLOCK);
        gemm::for_tiles<T>(V, BLOCK, [&](auto shape, int64_t i, int64_t j) {
            auto tile = decltype(shape)::Tile::zeros();
            ahead.some();
            if (followed) tile.add_product(in.K, dstate + i * K, K, 1, k_to_endT + j, BLOCK);
            tile.add_product(BLOCK, dy + i, 1, V, M + j, BLOCK);
            tile.store(dvT + i * BLOCK + j, BLOCK);
        });
        gemm::transpose((T*)dvT, BLOCK, V, BLOCK, (T*)dv, V);
        gemm::unpack((T*)dv, V, now.length, in.V, out.dv + start, stride);

        std::memset((void*)(T*)through, 0, K * sizeof(T));
        std::memset((void*)(T*)crossing, 0, 2 * K * sizeof(T));
        across(carried, dy, state, now.half, HALF, BLOCK, 1, now.k_to_half, now.q_from_half, crossing, dq);
        across(followed, value, dstate, now.half + K, 0, 1, BLOCK, now.q_from_half, now.k_to_half, crossing + K, dk);
        if (carried) {
            update(dy, now.q_from_start, [&](auto& tile, int64_t i, int64_t j) {
                Vec<T> sums[std::decay_t<decltype(tile)>::vectors] = {};
                tile.each([&](Vec<T>& x, int r, int64_t lane) {
                    const int64_t at = (i + r) * K + j + lane;
                    const Vec<T> before = Vec<T>::load(dstate + at);
                    Vec<T>& sum = sums[lane / Vec<T>::width];
                    sum = simd::fma(before, Vec<T>::load(state + at), sum);
                    simd::fma(Vec<T>::load(now.whole + j + lane), before, x).store(dstate + at);
                });
                add(sums, through + j);
            });
        }
        for (int64_t n = 0; n < K; n += Vec<T>::width) {
            for (int64_t half = 0; half < 2; half++) {
                has_bonus ? across_log<true>(now, half, n) : across_log<false>(now, half, n);
                has_bonus ? pairs<true>(now, half * HALF, n) : pairs<false>(now, half * HALF, n);
            }
        }
        write(task, t0, h, now.length, first);
    }

    // Lists what this block writes of dq, dk and dlog_decay, and what the block before it reads of dy and writes of dv.
    // A chunk ahead, it lists the inputs.
    void fetch(const KeyBlock<T>& now, const Task& task, int64_t t0, int64_t h) {
        const int64_t keys = ((task.part * in.B * in.T_ + in.token(task.b, t0)) * in.G + task.group) * in.K;
        const int64_t head = in.token(task.b, t0) * in.H + h;
        ahead.start();
        if (t0 > 0) {
            const int64_t before = in.token(task.b, t0 - BLOCK) * in.H + h;
            ahead.add(out.dy + before * in.V, in.H * in.V, BLOCK, in.V);
            if (t0 >= CHUNK) now.fetch(in, task.b, t0 - CHUNK, h, ahead);
            ahead.add(out.dv + before * in.V, in.H * in.V, BLOCK, in.V);
        }
        ahead.add(out.dq + keys, in.G * in.K, BLOCK, in.K);
        ahead.add(out.dk + keys, in.G * in.K, BLOCK, in.K);
        if (in.decay == VECTOR) ahead.add(out.dlog_decay + head * in.K, in.H * in.K, BLOCK, in.K);
    }

    // The gradients of queries through h, or of keys through dh, and through pairs with the other half, before their
    // decays in their own half:
    //     x = left h^T, in the half whose tokens do not touch h times the decays `other` of the other half
    //     to = x + pairs        total += the sum of x * decayed in that half
    // `far` is the first token of that half, and `decayed` are its queries or keys. Its pairs are a part of dM, with
    // these strides, times `partners`. x is zero if h is not `touched`.
    void across(bool touched, const T* left, const T* h, const T* other, int64_t far, int64_t row, int64_t column,
                const T* partners, const T* decayed, T* total, T* to) {
        gemm::for_tiles<T>(BLOCK, K, [&](auto shape, int64_t i, int64_t j) {
            auto tile = decltype(shape)::Tile::zeros();
            ahead.some();
            if (touched) tile.add_product(in.V, left + i * V, V, 1, h + j, K);
            if (i / HALF == far / HALF) {
                Vec<T> sums[shape.vectors] = {};
                tile.each([&](Vec<T>& x, int r, int64_t lane) {
                    x *= Vec<T>::load(other + j + lane);
                    Vec<T>& sum = sums[lane / Vec<T>::width];
                    sum = simd::fma(x, Vec<T>::load(decayed + (i - far + r) * K + j + lane), sum);
                });
                add(sums, total + j);
                tile.add_product(HALF, dM + HALF * BLOCK + (i - far) * row, row, column, partners + j, K);
            }
            tile.store(to + i * K + j, K);
        });
    }

    // For the keys n .. n + W in a half: multiplies dq and dk by their decays in the half. Computes the gradients of
    // the log decays through these terms and through what crosses all of the half.
    template <bool BONUS>
    void across_log(const KeyBlock<T>& now, int64_t half, int64_t n) {
        const int64_t start = half * HALF * K + n;
        T *const dquery = dq + start, *const dkey = dk + start, *const to = dlog + start;
        const T *const query = now.q + start, *const key = now.k + start, *const step = now.step + start;
        Vec<T> entering[HALF], decay((T)1);
#pragma GCC unroll 8
        for (int64_t t = 0; t < HALF; t++) {
            const Vec<T> before = decay;
            decay *= Vec<T>::load(step + t * K);
            const Vec<T> read = now.read_decay(decay, before, BONUS, half * HALF + t);
            const Vec<T> gradient = read * Vec<T>::load(dquery + t * K);
            gradient.store(dquery + t * K);
            entering[t] = gradient * Vec<T>::load(query + t * K);
        }
        Vec<T> later = simd::fma(Vec<T>::load(now.whole + n), Vec<T>::load(through + n),
                                 Vec<T>::load(crossing + half * K + n));
        Vec<T> leaving[HALF], logs[HALF];
        decay = Vec<T>((T)1);
#pragma GCC unroll 8
        for (int64_t t = HALF - 1; t >= 0; t--) {
            const Vec<T> gradient = decay * Vec<T>::load(dkey + t * K);
            gradient.store(dkey + t * K);
            leaving[t] = gradient * Vec<T>::load(key + t * K);
            decay *= Vec<T>::load(step + t * K);
            const Vec<T> with = later + entering[t];
            logs[t] = BONUS ? later : with;
            later = with;
        }
        Vec<T> earlier = Vec<T>::zero();
#pragma GCC unroll 8
        for (int64_t t = 0; t < HALF; t++) {
            (logs[t] + earlier).store(to + t * K);
            earlier += leaving[t];
        }
    }

    // Adds the gradients through pairs within the half from token t0 to dq, dk and dlog, for the keys n .. n + W.
    // dkey[s] is the adjoint of the decayed key s after step t.
    template <bool BONUS>
    void pairs(const KeyBlock<T>& now, int64_t t0, int64_t n) {
        const auto at = [&](const T* rows, int64_t t) { return Vec<T>::load(rows + (t0 + t) * K + n); };
        Vec<T> walked[HALF][HALF], dkey[HALF];  // walked[t][s]: key s as query t reads it
#pragma GCC unroll 8
        for (int64_t s = 0; s < HALF; s++) {
            Vec<T> key = at(now.k, s);
            dkey[s] = Vec<T>::zero();
#pragma GCC unroll 8
            for (int64_t t = s + 1; t < HALF; t++) {
                const Vec<T> after = key * at(now.step, t);
                walked[t][s] = BONUS ? key : after;
                key = after;
            }
        }
        const Vec<T> bonus = BONUS ? Vec<T>::load(now.bonus + n) : Vec<T>((T)1);
        Vec<T> sum_bonus = Vec<T>::zero();
#pragma GCC unroll 8
        for (int64_t t = HALF - 1; t >= 0; t--) {
            const T* const weights = dM + (t0 + t) * BLOCK + t0;
            const Vec<T> q = at(now.q, t), k = at(now.k, t), a = at(now.step, t), own(weights[t]);
            Vec<T> dquery = Vec<T>::zero(), ddecay = Vec<T>::zero();
#pragma GCC unroll 8
            for (int64_t s = 0; s < t; s++) {
                const Vec<T> weight(weights[s]);
                dquery = simd::fma(weight, walked[t][s], dquery);
                if (BONUS) {
                    if (t + 1 < HALF) ddecay = simd::fma(dkey[s], walked[t + 1][s], ddecay);
                    dkey[s] = simd::fma(weight, q, dkey[s] * a);
                } else {
                    dkey[s] = simd::fma(weight, q, dkey[s]);
                    ddecay = simd::fma(dkey[s], walked[t][s], ddecay);
                    dkey[s] *= a;
                }
            }
            const int64_t to = (t0 + t) * K + n;
            (ddecay + Vec<T>::load(dlog + to)).store(dlog + to);
            simd::fma(own * bonus, k, dquery + Vec<T>::load(dq + to)).store(dq + to);
            simd::fma(own * bonus, q, dkey[t] + Vec<T>::load(dk + to)).store(dk + to);
            if (BONUS) sum_bonus = simd::fma(own * q, k, sum_bonus);
        }
        if (BONUS) (sum_bonus + Vec<T>::load(dbonus + n)).store(dbonus + n);
    }

    void write(const Task& task, int64_t t0, int64_t h, int64_t length, bool first) {
        const int64_t token = in.token(task.b, t0), head = token * in.H + h;
        const int64_t keys = ((task.part * in.B * in.T_ + token) * in.G + task.group) * in.K;
        add_rows(dq, length, out.dq + keys, first);
        add_rows(dk, length, out.dk + keys, first);
        if (in.decay == NONE) return;
        if (in.decay == VECTOR)
            return gemm::unpack((T*)dlog, K, length, in.K, out.dlog_decay + head * in.K, in.H * in.K);
        for (int64_t t = 0; t < length; t++) {
            T sum = 0;
            for (int64_t n = 0; n < in.K; n++) sum += dlog[t * K + n];
            if (in.decay == CONSTANT) {
                out.dlog_decay[task.b * in.H + h] += sum;
            } else {
                out.dlog_decay[head + t * in.H] = sum;
            }
        }
    }

    // The first head of a task writes the sum. The other heads add to it.
    void add_rows(const T* from, int64_t length, T* to, bool first) {
        const int64_t stride = in.G * in.K;
        if (first) return gemm::unpack(from, K, length, in.K, to, stride);
        for (int64_t t = 0; t < length; t++)
            for (int64_t n = 0; n < in.K; n++) to[t * stride + n] += from[t * K + n];
    }

    const Inputs<T>& in;
    const Gradients<T>& out;
    const int64_t K, V;  // padded
    KeyBlock<T> block[BLOCKS];
    Buffer<T> M, dM;  // (BLOCK, BLOCK)
    Buffer<T> v;  // (CHUNK, V)
    Buffer<T> dy;  // (BLOCK, V)
    Buffer<T> dvT;  // (V, BLOCK)
    Buffer<T> dv;  // (BLOCK, V)
    Buffer<T> k_to_endT;  // (K, BLOCK)
    Buffer<T> dq, dk, dlog;  // (BLOCK, K)
    Buffer<T> through;  // (K,)
    Buffer<T> crossing;  // (2, K): gradients of the log decays of a half through what crosses all of it
    Buffer<T> dbonus;  // (K,)
    Buffer<T> natural;  // (K, V)
    Buffer<T> states, dstate;  // (BLOCKS, V, K) and (V, K): transposed
    simd::Ahead ahead;
};

}  // namespace gated
