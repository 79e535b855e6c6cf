// The delta scan, forward and backward, on the CPU: the delta rule and the generalized form of ssm_kernels.delta_scan.
//
// per_head_block.h has the algorithm for the delta rule with one decay per head or none. per_key_block.h has the
// algorithm for all other forms. A task is a group of one sequence, or a part of its heads. It processes its blocks in
// order. With fewer heads than threads, the forward pass also splits the columns of values. The gradients of q and k
// are sums over tasks in a fixed order, and the backward pass splits groups only by shapes. So results have the same
// bits for any number of threads.

#include "per_head.h"
#include "per_head_backward.h"
#include "per_key.h"
#include "per_key_backward.h"

namespace delta {

// The least columns of a slice. With fewer, the products of keys, which all slices compute again, cost too much.
constexpr int64_t LEAST = 32;

template <typename T>
void forward(const Inputs<T>& in, T* y, T* hT, T* saved, int64_t threads) {
    const int64_t parts = tasks::parts_for(threads, in.B * in.G, in.sharing());
    const auto width_of = [&](int64_t slices) { return padded<T>((in.V + slices - 1) / slices); };
    int64_t slices = std::max<int64_t>(1, threads / (in.B * in.H));
    while (slices > 1 && in.V - (slices - 1) * width_of(slices) < LEAST) slices--;  // columns of the last slice
    const int64_t width = width_of(slices);
    const auto with = [&](auto make) {
        threads::for_each(in.B * in.G * parts * slices, threads, make, [&](int64_t i, auto& worker) {
            const int64_t first = i % slices * width;
            worker.run(tasks::task_of(i / slices, parts, in.G, in.sharing()), {first, std::min(width, in.V - first)}, y,
                       hT, saved);
        });
    };
    in.by_head() ? with([&] { return PerHead<T>(in, width); }) : with([&] { return PerKey<T>(in, width); });
}

template <typename T>
void backward(const Inputs<T>& in, const Gradients<T>& out, const T* saved, int64_t threads) {
    const int64_t keys = in.B * in.T_ * in.G * in.K;
    const int64_t parts = tasks::parts_for(tasks::ENOUGH, in.B * in.G, in.sharing());
    Buffer<T> dq(parts > 1 ? parts * keys : 0), dk(parts > 1 ? parts * keys : 0);
    Gradients<T> own = out;
    if (parts > 1) own.dq = dq, own.dk = dk;
    const auto with = [&](auto make) {
        threads::for_each(in.B * in.G * parts, threads, make, [&](int64_t i, auto& worker) {
            worker.run(tasks::task_of(i, parts, in.G, in.sharing()), saved);
        });
    };
    in.by_head() ? with([&] { return PerHeadBackward<T>(in, own); }) : with([&] { return PerKeyBackward<T>(in, own); });
    if (parts > 1) {
        tasks::add_up<T>(dq, parts, keys, out.dq, threads);
        tasks::add_up<T>(dk, parts, keys, out.dk, threads);
    }
}

// sizes: B, T, G, H, K, V, kind of decay, threads. Absent inputs, and states that are not saved, are null.
template <typename T>
Inputs<T> inputs(const T* q, const T* k, const T* v, const T* beta, const T* log_decay, const T* h0, const T* a,
                 const T* b, const unsigned char* resets, const int64_t* sizes) {
    return {q,        k,        v,        beta,     a,        b,        log_decay, h0,
            resets,   sizes[6], sizes[0], sizes[1], sizes[2], sizes[3], sizes[4],  sizes[5]};
}

}  // namespace delta

#define INPUTS(T)                                                                                                   \
    const T *q, const T *k, const T *v, const T *beta, const T *log_decay, const T *h0, const T *a, const T *b,     \
        const unsigned char *resets, const int64_t *sizes

// The functions return 0, or 1 if there is not enough memory.
#define EXPORT(T, SUFFIX)                                                                                         \
    int delta_scan_forward_##SUFFIX(INPUTS(T), T* y, T* hT, T* saved) {                                           \
        const auto in = delta::inputs(q, k, v, beta, log_decay, h0, a, b, resets, sizes);                         \
        return threads::guarded([&] { delta::forward<T>(in, y, hT, saved, sizes[7]); });                          \
    }                                                                                                             \
    int delta_scan_backward_##SUFFIX(INPUTS(T), const T* saved, const T* dy, const T* dhT, T* dq, T* dk, T* dv,   \
                                     T* dbeta, T* dlog_decay, T* dh0, T* da, T* db) {                             \
        const auto in = delta::inputs(q, k, v, beta, log_decay, h0, a, b, resets, sizes);                         \
        return threads::guarded([&] {                                                                             \
            delta::backward<T>(in, {dy, dhT, dq, dk, dv, dbeta, dlog_decay, dh0, da, db}, saved, sizes[7]);       \
        });                                                                                                       \
    }

extern "C" {
EXPORT(float, f32)
EXPORT(double, f64)
int64_t delta_scan_chunk() { return delta::CHUNK; }
int64_t delta_scan_tokens() { return delta::TOKENS; }
}
