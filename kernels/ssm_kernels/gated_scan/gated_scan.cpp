// The gated scan, forward and backward, on the CPU: S_t = diag(a_t) S_{t-1} + k_t v_t^T, y_t = q_t^T S_t.
//
// per_head.h has the algorithm for one decay per head. per_key.h has the algorithm for a decay per key, and for a
// bonus. A task is a group of one sequence, or a part of its heads. It processes its chunks in order. The gradients of
// q, k, constant decays and the bonus are sums over tasks in a fixed order, and the split of groups into tasks depends
// only on shapes. So results have the same bits for any number of threads.

#include "per_head_backward.h"
#include "per_key_backward.h"

namespace gated {

using tasks::add_up;
using tasks::parts_for;
using tasks::task_of;

template <typename T>
bool per_key(const Inputs<T>& in) {
    return in.decay == VECTOR || in.bonus != nullptr;
}

template <typename T>
void forward(const Inputs<T>& in, T* y, T* hT, T* saved, int64_t threads) {
    const int64_t parts = parts_for(threads, in.B * in.G, in.sharing());
    const int64_t most = (in.sharing() + parts - 1) / parts;  // heads per part
    const auto with = [&](auto make) {
        threads::for_each(in.B * in.G * parts, threads, make, [&](int64_t i, auto& worker) {
            worker.run(task_of(i, parts, in.G, in.sharing()), y, hT, saved);
        });
    };
    per_key(in) ? with([&] { return PerKeyForward<T>(in); }) : with([&] { return PerHeadForward<T>(in, most); });
}

template <typename T>
void backward(const Inputs<T>& in, const Gradients<T>& out, const T* saved, int64_t threads) {
    const int64_t parts = parts_for(tasks::ENOUGH, in.B * in.G, in.sharing()), most = (in.sharing() + parts - 1) / parts;
    const int64_t keys = in.B * in.T_ * in.G * in.K;
    Buffer<T> dq(parts > 1 ? parts * keys : 0), dk(parts > 1 ? parts * keys : 0);
    Buffer<T> dlog_decay(in.decay == CONSTANT ? in.B * in.H : 0), dbonus(in.B * in.H * in.K);
    Gradients<T> own = out;
    if (parts > 1) own.dq = dq, own.dk = dk;
    if (in.decay == CONSTANT) own.dlog_decay = dlog_decay;
    if (in.bonus != nullptr) own.dbonus = dbonus;
    const auto with = [&](auto make) {
        threads::for_each(in.B * in.G * parts, threads, make, [&](int64_t i, auto& worker) {
            worker.run(task_of(i, parts, in.G, in.sharing()), saved);
        });
    };
    per_key(in) ? with([&] { return PerKeyBackward<T>(in, own); })
                : with([&] { return PerHeadBackward<T>(in, own, most); });
    if (parts > 1) {
        add_up<T>(dq, parts, keys, out.dq, threads);
        add_up<T>(dk, parts, keys, out.dk, threads);
    }
    if (in.decay == CONSTANT) add_up<T>(dlog_decay, in.B, in.H, out.dlog_decay, 1);
    if (in.bonus != nullptr) add_up<T>(dbonus, in.B, in.H * in.K, out.dbonus, 1);
}

}  // namespace gated

// sizes: B, T, G, H, K, V, kind of decay, threads. Absent inputs, and states that are not saved, are null. The
// functions return 0, or 1 if there is not enough memory.
template <typename T>
static gated::Inputs<T> inputs(const T* q, const T* k, const T* v, const T* log_decay, const T* h0, const T* bonus,
                               const unsigned char* resets, const int64_t* sizes) {
    return {q,        k,        v,        log_decay, h0,       bonus,    resets,
            sizes[6], sizes[0], sizes[1], sizes[2],  sizes[3], sizes[4], sizes[5]};
}

#define INPUTS(T)                                                                          \
    const T *q, const T *k, const T *v, const T *log_decay, const T *h0, const T *bonus,   \
        const unsigned char *resets, const int64_t *sizes

#define EXPORT(T, SUFFIX)                                                                                       \
    int gated_scan_forward_##SUFFIX(INPUTS(T), T* y, T* hT, T* saved) {                                         \
        const auto in = inputs(q, k, v, log_decay, h0, bonus, resets, sizes);                                   \
        return threads::guarded([&] { gated::forward<T>(in, y, hT, saved, sizes[7]); });                        \
    }                                                                                                           \
    int gated_scan_backward_##SUFFIX(INPUTS(T), const T* saved, const T* dy, const T* dhT, T* dq, T* dk, T* dv, \
                                     T* dlog_decay, T* dh0, T* dbonus) {                                        \
        const auto in = inputs(q, k, v, log_decay, h0, bonus, resets, sizes);                                   \
        return threads::guarded([&] {                                                                           \
            gated::backward<T>(in, {dy, dhT, dq, dk, dv, dh0, dlog_decay, dbonus}, saved, sizes[7]);            \
        });                                                                                                     \
    }

extern "C" {
EXPORT(float, f32)
EXPORT(double, f64)
int64_t gated_scan_chunk() { return gated::CHUNK; }
}
