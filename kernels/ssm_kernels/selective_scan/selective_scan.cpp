// The selective scan of Mamba-1 on the CPU (Gu & Dao 2023, Section 3.3). The C functions return 0, or 1 if there is not
// enough memory.
//
// The lanes of a vector are channels, and the state of a chunk of channels stays in registers. So a step costs two
// products, one exp2 and two multiply-adds per vector of states. The forward saves the state of every 16th step. The
// backward recomputes the states between them.

#include "backward.h"
#include "forward.h"

#define PROBLEM(T)                                                                                                    \
    const T *u, int64_t u_batch, int64_t u_step, const T *dt, int64_t dt_batch, int64_t dt_step, const T *z,          \
        int64_t z_batch, int64_t z_step, const T *B, int64_t B_batch, int64_t B_step, const T *C, int64_t C_batch,    \
        int64_t C_step, const T *A, const T *D, const T *bias, const T *h0, const uint8_t *resets, int64_t batch,     \
        int64_t length, int64_t channels, int64_t states, int64_t softplus
#define PROBLEM_OF(T)                                                                                                 \
    selective_scan::Problem<T> {                                                                                      \
        batch, length, channels, states, softplus != 0, {u, u_batch, u_step}, {dt, dt_batch, dt_step},                \
            {z, z_batch, z_step}, {B, B_batch, B_step}, {C, C_batch, C_step}, A, D, bias, h0, resets                  \
    }

// Strides are in elements. Gradients of absent inputs (dz without z) are null. All others are written.
#define EXPORT(T, SUFFIX)                                                                                             \
    extern "C" int selective_scan_forward_##SUFFIX(PROBLEM(T), T* y, T* hT, T* saved, int64_t threads) {              \
        return threads::guarded([=] { selective_scan::forward<T>(PROBLEM_OF(T), y, hT, saved, threads); });           \
    }                                                                                                                 \
    extern "C" int selective_scan_backward_##SUFFIX(                                                                  \
        PROBLEM(T), const T* dy, int64_t dy_batch, int64_t dy_step, const T* dhT, const T* saved, T* du, T* ddt,      \
        T* dz, T* dB, T* dC, T* dA, T* dD, T* dbias, T* dh0, int64_t threads) {                                       \
        return threads::guarded([=] {                                                                                 \
            selective_scan::backward<T>(PROBLEM_OF(T), {dy, dy_batch, dy_step}, dhT, saved,                           \
                                        {du, ddt, dz, dB, dC, dA, dD, dbias, dh0}, threads);                          \
        });                                                                                                           \
    }

EXPORT(float, f32)
EXPORT(double, f64)
