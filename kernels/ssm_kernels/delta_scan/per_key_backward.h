// The backward pass of per_key_block.h. With dS the adjoint of the state after a block, the adjoint before it is
// diag(A_last) dS + sum_j (c_j A_{j-1}) dr_j^T + (q_j A_j) dy_j^T.
#pragma once

#include "backward.h"
#include "per_key_block.h"

namespace delta {

// A block, and the values that its tokens read and write. Rows beyond its tokens are zero.
template <typename T>
struct WrittenKeyBlock : KeyBlock<T> {
    using KeyBlock<T>::in, KeyBlock<T>::writes;
    const int64_t V;    // padded
    Buffer<T> kept;     // (BLOCK, V): r, or v - r for the delta rule
    Buffer<T> lasting;  // (writes, V): x

    explicit WrittenKeyBlock(const Inputs<T>& in_)
        : KeyBlock<T>(in_), V(padded<T>(in_.V)), kept(BLOCK * V), lasting(writes * V) {}

    int64_t count() const { return writes; }
    const T* keys() const { return this->to_end; }

    void read(int64_t b, int64_t h, const Span& span, const T* saved) {
        KeyBlock<T>::read(b, h, span, -CHUNK);
        const int64_t start = in.head(b, span.t0, h) * in.V, stride = in.H * in.V;
        const T* const rows = in.kept_of(saved, b, h, span.t0);
        gemm::pack(rows, in.kept_row(), span.length, in.V, (T*)kept, BLOCK, V, -CHUNK * in.kept_row());
        if (!in.delta_rule()) {
            std::memcpy((void*)lasting, kept, BLOCK * V * sizeof(T));
            gemm::pack(in.v + start, stride, span.length, in.V, lasting + BLOCK * V, BLOCK, V, -CHUNK * stride);
            return;
        }
        for (int64_t j = 0; j < BLOCK; j++) {
            const Vec<T> beta(j < span.length ? in.beta[in.head(b, span.t0 + j, h)] : (T)0);
            for (int64_t n = j * V; n < (j + 1) * V; n += Vec<T>::width)
                (beta * Vec<T>::load(kept + n)).store(lasting + n);
        }
    }
};

template <typename T>
class PerKeyBackward final : public Backward<T, WrittenKeyBlock<T>> {
    typedef WrittenKeyBlock<T> Block;

public:
    PerKeyBackward(const Inputs<T>& in_, const Gradients<T>& out_)
        : Backward<T, Block>(in_, out_), writes(in.writes() * BLOCK), given(2 * BLOCK * V), dv(BLOCK * V),
          dvalues(writes * V), dM(2 * BLOCK * writes), of_state(2 * BLOCK * K), dreaders(2 * BLOCK * K),
          to_state(writes * K), dwriters(writes * K), dlog(BLOCK * K), dbeta(BLOCK * Vec<T>::width) {}

private:
    using Backward<T, Block>::in, Backward<T, Block>::out, Backward<T, Block>::K, Backward<T, Block>::V;
    using Backward<T, Block>::dstate, Backward<T, Block>::natural;

    void gradients(const Task& task, int64_t h, Block& block, const T* state, const T*) override {
        const auto [t0, length, reset] = block.span;
        const int64_t start = in.head(task.b, t0, h) * in.V, stride = in.H * in.V;
        block.score();
        gemm::pack(out.dy + start, stride, length, in.V, given + BLOCK * V, BLOCK, V, block.ahead * stride);
        gemm::transpose<T>(dstate, K, V, K, natural, V);
        product<T>(writes, V, in.K, block.to_end, K, 1, natural, dvalues);
        in.delta_rule() ? solve<true>(block, task.b, h) : solve<false>(block, task.b, h);

        product<T>(writes, K, in.V, block.lasting, V, 1, dstate, to_state);
        if (state != nullptr) {
            product<T>(2 * BLOCK, K, in.V, given, V, 1, state, of_state);
        } else {
            std::memset((void*)of_state, 0, 2 * BLOCK * K * sizeof(T));
        }
        for (int64_t p = 0; p < writes; p += BLOCK)
            InnerProducts<T, false>::run(given, block.lasting + p * V, nullptr, V, dM + p, writes);
        pairs(block);
        borders(block, state);
        write(block, task, h);

        if (reset) {
            std::memset((void*)dstate, 0, V * K * sizeof(T));
        } else if (state != nullptr) {  // otherwise it is not needed: there is no state before
            this->decay_and_add(block, dstate, 2 * BLOCK, given, block.from_start, dstate);
        }
    }

    // From the last token to the first: adds the reads by later tokens of the block to dvalues. From dvalues, computes
    // dr (the first half of `given`), dv, and dbeta as sums of lanes.
    template <bool DELTA>
    void solve(const Block& block, int64_t b, int64_t h) {
        constexpr int64_t W = Vec<T>::width, COLUMNS = DELTA ? BLOCK : 2 * BLOCK;
        const auto [t0, length, reset] = block.span;
        T beta[BLOCK] = {};
        for (int64_t j = 0; DELTA && j < length; j++) beta[j] = in.beta[in.head(b, t0 + j, h)];
        for (int64_t n = 0; n < V; n += W) {
            Vec<T> dr[BLOCK];
#pragma GCC unroll 8
            for (int64_t j = BLOCK - 1; j >= 0; j--) {
                const int64_t at = j * V + n;
                if (j >= length) {
                    dr[j] = Vec<T>::zero();
                    dr[j].store(given + at);
                    continue;
                }
                const T* const m = block.M + j;  // column j: the tokens that read what j wrote
                const T* const dy = given + BLOCK * V + n;
                Vec<T> dx = Vec<T>::load(dvalues + at), dx2 = DELTA ? dx : Vec<T>::load(dvalues + BLOCK * V + at);
#pragma GCC unroll 8
                for (int64_t i = BLOCK - 1; i >= j; i--) {
                    if (i >= length) continue;
                    const Vec<T> d = Vec<T>::load(dy + i * V);
                    dx = simd::fma(Vec<T>(m[(BLOCK + i) * COLUMNS]), d, dx);
                    if (!DELTA) dx2 = simd::fma(Vec<T>(m[(BLOCK + i) * COLUMNS + BLOCK]), d, dx2);
                    if (i == j) continue;
                    dx = simd::fma(Vec<T>(m[i * COLUMNS]), dr[i], dx);
                    if (!DELTA) dx2 = simd::fma(Vec<T>(m[i * COLUMNS + BLOCK]), dr[i], dx2);
                }
                dr[j] = dx;
                if (DELTA) {
                    const Vec<T> scaled = Vec<T>(beta[j]) * dx, error = Vec<T>::load(block.kept + at);
                    dr[j] = -scaled;
                    T* const sum = dbeta + j * W;
                    simd::fma(dx, error, n == 0 ? Vec<T>::zero() : Vec<T>::load(sum)).store(sum);
                    dx2 = scaled;
                }
                dr[j].store(given + at);
                dx2.store(dv + at);
            }
        }
    }

    // Adds the gradients through pairs of the block to dreaders, dwriters and dlog. Writers decay step by step from their
    // token, and their adjoints go backward.
    void pairs(const Block& block) {
        for (int64_t n = 0; n < K; n += Vec<T>::width) {
            for (int64_t p = 0; p < writes; p += BLOCK) {
                const auto at = [&](const T* rows, int64_t j) { return Vec<T>::load(rows + j * K + n); };
                Vec<T> walked[BLOCK][BLOCK], dwriter[BLOCK];
#pragma GCC unroll 8
                for (int64_t i = 0; i < BLOCK; i++) {
                    walked[i][i] = at(block.writers, p + i);
                    dwriter[i] = Vec<T>::zero();
#pragma GCC unroll 8
                    for (int64_t j = i + 1; j < BLOCK; j++) walked[j][i] = walked[j - 1][i] * block.step_at(j, n);
                }
#pragma GCC unroll 8
                for (int64_t j = BLOCK - 1; j >= 0; j--) {
                    const T* const read = dM + j * writes + p;
                    const T* const out = read + BLOCK * writes;
                    const Vec<T> c = at(block.readers, j), q = at(block.readers, BLOCK + j), a = block.step_at(j, n);
                    Vec<T> dc = Vec<T>::zero(), dq = Vec<T>(out[j]) * walked[j][j], ddecay = Vec<T>::zero();
                    dwriter[j] = simd::fma(Vec<T>(out[j]), q, dwriter[j]);
#pragma GCC unroll 8
                    for (int64_t i = 0; i < j; i++) {
                        dwriter[i] = simd::fma(Vec<T>(out[i]), q, dwriter[i]);
                        dq = simd::fma(Vec<T>(out[i]), walked[j][i], dq);
                        ddecay = simd::fma(dwriter[i], walked[j][i], ddecay);
                        dwriter[i] = simd::fma(Vec<T>(read[i]), c, dwriter[i] * a);
                        dc = simd::fma(Vec<T>(read[i]), walked[j - 1][i], dc);
                    }
                    const auto give = [&](T* rows, int64_t row, Vec<T> x) {
                        T* const to = rows + row * K + n;
                        (p == 0 ? x : x + Vec<T>::load(to)).store(to);
                    };
                    give(dreaders, j, dc);
                    give(dreaders, BLOCK + j, dq);
                    give(dlog, j, ddecay);
                }
#pragma GCC unroll 8
                for (int64_t i = 0; i < BLOCK; i++) dwriter[i].store(dwriters + (p + i) * K + n);
            }
        }
    }

    // Adds the gradients across the block's borders to dreaders, dwriters and dlog. Then, for the delta rule, the
    // gradient of c is added to the gradient of k.
    void borders(const Block& block, const T* state) {
        for (int64_t n = 0; n < K; n += Vec<T>::width) {
            const auto at = [&](const T* rows, int64_t j) { return Vec<T>::load(rows + j * K + n); };
            const auto give = [&](T* rows, int64_t j, Vec<T> x) { (at(rows, j) + x).store(rows + j * K + n); };
            Vec<T> later = Vec<T>::zero(), earlier = Vec<T>::zero();
            if (state != nullptr && in.decay != NONE) {
                for (int64_t i = 0; i < in.V; i++) later = simd::fma(at(state, i), at(dstate, i), later);
                later *= block.whole_at(n);
            }
            for (int64_t j = BLOCK - 1; j >= 0; j--) {
                const Vec<T> dc = at(of_state, j), dq = at(of_state, BLOCK + j);
                give(dreaders, j, block.from_at(j, n) * dc);
                give(dreaders, BLOCK + j, block.from_at(j + 1, n) * dq);
                later = simd::fma(at(block.from_start, BLOCK + j), dq, later);
                Vec<T> terms = later;
                if (in.delta_rule()) terms = simd::fma(at(block.readers, j), at(dreaders, j), terms);
                give(dlog, j, terms);
                later = simd::fma(at(block.from_start, j), dc, later);
            }
            for (int64_t j = 0; j < BLOCK; j++) {
                give(dlog, j, earlier);
                for (int64_t p = j; p < writes; p += BLOCK) {
                    give(dwriters, p, block.to_at(j, n) * at(to_state, p));
                    earlier = simd::fma(at(block.to_end, p), at(to_state, p), earlier);
                }
                if (in.delta_rule()) give(dwriters, j, block.step_at(j, n) * at(dreaders, j));
            }
        }
    }

    void write(const Block& block, const Task& task, int64_t h) {
        const auto [t0, length, reset] = block.span;
        const int64_t part = task.part * in.B * in.T_ * in.G, keys = (writes - BLOCK) * K;
        const bool first = h == task.first_head;
        gemm::unpack((T*)dv, V, length, in.V, out.dv + in.head(task.b, t0, h) * in.V, in.H * in.V);
        for (int64_t j = 0; j < length; j++) {
            const int64_t head = in.head(task.b, t0 + j, h), group = (part + in.group(task.b, t0 + j, h)) * in.K;
            add_row<T>(dreaders + (BLOCK + j) * K, out.dq + group, in.K, first);
            add_row<T>(dwriters + keys + j * K, out.dk + group, in.K, first);
            if (in.delta_rule()) {
                out.dbeta[head] = simd::sum(Vec<T>::load(dbeta + j * Vec<T>::width));
            } else {
                gemm::unpack(dreaders + j * K, K, 1, in.K, out.da + head * in.K, in.K);
                gemm::unpack(dwriters + j * K, K, 1, in.K, out.db + head * in.K, in.K);
            }
            if (in.decay == KEY) {
                gemm::unpack(dlog + j * K, K, 1, in.K, out.dlog_decay + head * in.K, in.K);
            } else if (in.decay == HEAD) {
                Vec<T> sum = Vec<T>::load(dlog + j * K);
                for (int64_t n = Vec<T>::width; n < K; n += Vec<T>::width) sum += Vec<T>::load(dlog + j * K + n);
                out.dlog_decay[head] = simd::sum(sum);
            }
        }
    }

    const int64_t writes;                     // as in KeyBlock
    Buffer<T> given;                          // (2 BLOCK, V): dr, dy
    Buffer<T> dv;                             // (BLOCK, V)
    Buffer<T> dvalues;                        // (writes, V)
    Buffer<T> dM;                             // (2 BLOCK, writes)
    Buffer<T> of_state, dreaders;             // (2 BLOCK, K): gradients of readers through the first state, and all
    Buffer<T> to_state, dwriters;             // (writes, K): gradients of writers through the last state, and all
    Buffer<T> dlog;                           // (BLOCK, K)
    Buffer<T> dbeta;                          // (BLOCK, W): sums of lanes
};

}  // namespace delta
