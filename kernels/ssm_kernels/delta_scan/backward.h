// The delta scan backward: chunks from the last to the first. The states that a chunk's blocks start from are computed
// again from the one that was kept and from what every step read; then its blocks from the last to the first, with dS
// the adjoint of the state behind a block, before it diag(A_last) dS + sum_j (c_j A_{j-1}) dr_j^T + (q_j A_j) dy_j^T.
//
// Both are held transposed, (V, K), because most sums run over V. The gradient of a log decay is the sum of the terms
// that pass it (reads of the state from before it, writes that last beyond it, pairs on its two sides): no difference
// of large sums is taken, nothing is divided, and a decay of 0 has a gradient of 0.
#pragma once

#include "block.h"

namespace delta {

template <typename T>
class Backward {
public:
    Backward(const Inputs<T>& in_, const Gradients<T>& out_)
        : in(in_), out(out_), K(padded<T>(in.K)), V(padded<T>(in.V)), block(in), natural(K * V), dstate(V * K),
          states(MOST_STATES * V * K), given(2 * BLOCK * V), reads(BLOCK * V), v(BLOCK * V), values(block.writes * V),
          dvalues(block.writes * V), dM(2 * BLOCK * block.writes), of_state(2 * BLOCK * K), dreaders(2 * BLOCK * K),
          to_state(block.writes * K), dwriters(block.writes * K), dlog(BLOCK * K),
          dbeta(BLOCK * Vec<T>::width) {}

    void run(const Task& task, const T* saved) {
        for (int64_t h = task.first_head; h < task.first_head + task.heads; h++) {
            const int64_t row = (task.b * in.H + h) * in.K * in.V;
            transposed(out.dhT == nullptr ? nullptr : out.dhT + row, dstate);
            for (int64_t c = (in.T_ - 1) / CHUNK; c >= 0; c--) chunk(task, h, c, saved);
            if (out.dh0 == nullptr) continue;
            gemm::transpose<T>(dstate, K, V, K, natural, V);
            gemm::unpack((T*)natural, V, in.K, in.V, out.dh0 + row, in.V);
        }
    }

private:
    // A state in its padded, transposed form; null is zeros.
    void transposed(const T* state, T* to) {
        if (state == nullptr) {
            std::memset((void*)to, 0, V * K * sizeof(T));
        } else {
            gemm::pack(state, in.V, in.K, in.V, (T*)natural, K, V, -in.K * in.V);
            gemm::transpose<T>(natural, V, K, V, to, K);
        }
    }

    void chunk(const Task& task, int64_t h, int64_t c, const T* saved) {
        Span spans[CHUNK];
        const T* before[CHUNK];  // the states that the spans start from; null is zeros
        const int64_t start = c * CHUNK, end = std::min(start + CHUNK, in.T_);
        int64_t count = 0;
        for (int64_t t = start; t < end; t += spans[count++].length) spans[count] = in.span(task.b, t);
        T* next = states;
        for (int64_t m = 0; m < count; m++) {
            before[m] = nullptr;
            if (spans[m].reset) continue;
            if (m > 0) {
                advance(task.b, h, spans[m - 1], before[m - 1], next, saved);
            } else if (const T* kept = in.kept_state(saved, task.b, h, c)) {
                transposed(kept, next);
            } else {
                continue;
            }
            before[m] = next;
            next += V * K;
        }
        for (int64_t m = count - 1; m >= 0; m--) gradients(task, h, spans[m], before[m], saved);
    }

    // What a span's steps read and wrote: rows of reads, v and values; zero beyond its tokens.
    void read_values(int64_t b, int64_t h, const Span& span, const T* saved) {
        const int64_t start = in.head(b, span.t0, h) * in.V, stride = in.H * in.V;
        const T* const read = in.kept_read(saved, b, h, span.t0);
        gemm::pack(read, in.V, span.length, in.V, (T*)reads, BLOCK, V, block.ahead * in.V);
        gemm::pack(in.v + start, stride, span.length, in.V, (T*)v, BLOCK, V, block.ahead * stride);
        if (!in.delta_rule()) {
            std::memcpy((void*)values, reads, BLOCK * V * sizeof(T));
            std::memcpy((void*)(values + BLOCK * V), v, BLOCK * V * sizeof(T));
            return;
        }
        for (int64_t j = 0; j < BLOCK; j++) {
            const Vec<T> beta(j < span.length ? in.beta[in.head(b, span.t0 + j, h)] : (T)0);
            for (int64_t n = j * V; n < (j + 1) * V; n += Vec<T>::width)
                (beta * (Vec<T>::load(v + n) - Vec<T>::load(reads + n))).store(values + n);
        }
    }

    // The state behind a span from the one before it, both transposed.
    void advance(int64_t b, int64_t h, const Span& span, const T* from, T* to, const T* saved) {
        block.read(b, h, span, -CHUNK);
        read_values(b, h, span, saved);
        decay_and_add(from, block.writes, values, block.to_end(), to);
    }

    // to (V, K) = `from` times the whole block's decays, plus left^T right with left (n, V) and right (n, K).
    void decay_and_add(const T* from, int64_t n, const T* left, const T* right, T* to) const {
        gemm::for_tiles<T>(V, K, [&](auto shape, int64_t i, int64_t j) {
            typedef typename decltype(shape)::Tile Tile;
            Tile tile = Tile::zeros();
            tile.add_product(n, left + i, 1, V, right + j, K);
            if (from != nullptr)
                tile.each([&](Vec<T>& x, int row, int64_t lane) {
                    x = simd::fma(block.whole_at(j + lane), Vec<T>::load(from + (i + row) * K + j + lane), x);
                });
            tile.store(to + i * K + j, K);
        });
    }

    void gradients(const Task& task, int64_t h, const Span& span, const T* state, const T* saved) {
        const int64_t writes = block.writes, b = task.b;
        const int64_t start = in.head(b, span.t0, h) * in.V, stride = in.H * in.V;
        block.read(b, h, span, -CHUNK);
        block.score();
        read_values(b, h, span, saved);
        gemm::pack(out.dy + start, stride, span.length, in.V, given + BLOCK * V, BLOCK, V, block.ahead * stride);
        gemm::transpose<T>(dstate, K, V, K, natural, V);
        product<T>(writes, V, in.K, block.to_end(), K, 1, natural, dvalues);
        in.delta_rule() ? solve<true>(b, h) : solve<false>(b, h);

        product<T>(writes, K, in.V, values, V, 1, dstate, to_state);
        if (state != nullptr) {
            product<T>(2 * BLOCK, K, in.V, given, V, 1, state, of_state);
        } else {
            std::memset((void*)of_state, 0, 2 * BLOCK * K * sizeof(T));
        }
        for (int64_t p = 0; p < writes; p += BLOCK)
            InnerProducts<T, false>::run(given, values + p * V, nullptr, V, dM + p, writes);
        in.decay == KEY ? pairs_by_key() : pairs();
        borders(state);
        write(task, h);

        if (span.reset) {
            std::memset((void*)dstate, 0, V * K * sizeof(T));
        } else if (state != nullptr) {  // else nobody asks: there is no state before
            decay_and_add(dstate, 2 * BLOCK, given, block.from_start(), dstate);
        }
    }

    // From the last token to the first: dvalues, onto which comes what the block's own later tokens read, and from it
    // dr (the first half of `given`), dv (onto v's place) and, as sums of lanes, dbeta.
    template <bool DELTA>
    void solve(int64_t b, int64_t h) {
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
                const T* const m = block.M + j;  // column j: who reads what j wrote
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
                    const Vec<T> dv = Vec<T>(beta[j]) * dx, error = Vec<T>::load(v + at) - Vec<T>::load(reads + at);
                    dr[j] = -dv;
                    T* const sum = dbeta + j * W;
                    simd::fma(dx, error, n == 0 ? Vec<T>::zero() : Vec<T>::load(sum)).store(sum);
                    dx2 = dv;
                }
                dr[j].store(given + at);
                dx2.store(v + at);
            }
        }
    }

    // What the block's pairs give to dreaders, dwriters and, without sums over keys, to the log decays of `by_head`.
    void pairs() {
        const int64_t writes = block.writes;
        if (in.decay == HEAD) {
            T later[2 * BLOCK] = {};  // of every writer, the terms that pass the decay at hand
            for (int64_t j = BLOCK - 1; j >= 0; j--) {
                by_head[j] = 0;
                for (int64_t i = 0; i < writes; i++) {
                    if (i % BLOCK >= j) continue;
                    const int64_t read = j * writes + i, out = (BLOCK + j) * writes + i;
                    later[i] += dM[out] * block.M[out];
                    by_head[j] += later[i];
                    later[i] += dM[read] * block.M[read];
                }
            }
            block.times_passed(dM);
        }
        product<T>(2 * BLOCK, K, writes, dM, writes, 1, block.writers, dreaders);
        product<T>(writes, K, 2 * BLOCK, dM, 1, writes, block.readers, dwriters);
    }

    // The same with decays by key, and dlog: the writers walk on from their own token, their adjoints walk back.
    void pairs_by_key() {
        const int64_t writes = block.writes;
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

    // What reaches over the block's borders, onto dreaders, dwriters and dlog; then dreaders of the delta rule's c are
    // part of its k.
    void borders(const T* state) {
        const bool by_key = in.decay == KEY;
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
                later = simd::fma(at(block.from_start(), BLOCK + j), dq, later);
                Vec<T> terms = later;
                if (in.delta_rule()) terms = simd::fma(at(block.readers, j), at(dreaders, j), terms);
                (by_key ? at(dlog, j) + terms : terms).store(dlog + j * K + n);
                later = simd::fma(at(block.from_start(), j), dc, later);
            }
            for (int64_t j = 0; j < BLOCK; j++) {
                give(dlog, j, earlier);
                for (int64_t p = j; p < block.writes; p += BLOCK) {
                    give(dwriters, p, block.to_at(j, n) * at(to_state, p));
                    earlier = simd::fma(at(block.to_end(), p), at(to_state, p), earlier);
                }
                if (in.delta_rule()) give(dwriters, j, block.step_at(j, n) * at(dreaders, j));
            }
        }
    }

    void write(const Task& task, int64_t h) {
        const auto [t0, length, reset] = block.span;
        const int64_t part = task.part * in.B * in.T_ * in.G, keys = (block.writes - BLOCK) * K;
        const bool first = h == task.first_head;
        gemm::unpack((T*)v, V, length, in.V, out.dv + in.head(task.b, t0, h) * in.V, in.H * in.V);
        for (int64_t j = 0; j < length; j++) {
            const int64_t head = in.head(task.b, t0 + j, h), group = (part + in.group(task.b, t0 + j, h)) * in.K;
            add_row(dreaders + (BLOCK + j) * K, out.dq + group, first);
            add_row(dwriters + keys + j * K, out.dk + group, first);
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
                out.dlog_decay[head] = by_head[j] + simd::sum(sum);
            }
        }
    }

    // The first head of a task writes what the others add to.
    void add_row(const T* from, T* to, bool first) {
        simd::for_each_vector<T>(in.K, [&](int64_t n, auto lanes) {
            const Vec<T> x = Vec<T>::load(from + n);
            lanes.store(to + n, first ? x : x + lanes.load(to + n));
        });
    }

    const Inputs<T>& in;
    const Gradients<T>& out;
    const int64_t K, V;  // padded
    Block<T> block;
    Buffer<T> natural;                        // (K, V): a state on its way to or from its transposed form
    Buffer<T> dstate;                         // (V, K)
    Buffer<T> states;                         // (MOST_STATES, V, K)
    Buffer<T> given;                          // (2 BLOCK, V): dr, dy
    Buffer<T> reads, v;                       // (BLOCK, V): r, and v that dv replaces
    Buffer<T> values, dvalues;                // (writes, V)
    Buffer<T> dM;                             // (2 BLOCK, writes)
    Buffer<T> of_state, dreaders;             // (2 BLOCK, K): what readers get through the block's first state, and all
    Buffer<T> to_state, dwriters;             // (writes, K): what writers get through its last, and all
    Buffer<T> dlog;                           // (BLOCK, K)
    Buffer<T> dbeta;                          // (BLOCK, W): sums of lanes
    T by_head[BLOCK] = {};                    // what pairs give to log decays by head
};

}  // namespace delta
