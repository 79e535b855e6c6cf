// Parallel loops that report a lack of memory. An exception that leaves an OpenMP region or an extern "C" function ends
// the process. So `for_each` throws in the calling thread outside of the region, and `guarded` returns a code.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>

#include "simd.h"

namespace threads {

// Calls body(i, scratch) for all i < items. Every thread creates its scratch with make(). If one of these calls fails,
// no body is called, and std::bad_alloc is thrown.
//
// A thread takes items that follow each other. If threads took them in turn, they would process neighboring heads at the
// same time, and each core would prefetch memory that another one writes.
template <typename Make, typename Body>
void for_each(int64_t items, int64_t threads, const Make& make, const Body& body) {
    using Scratch = decltype(make());
    bool failed = false;
#pragma omp parallel num_threads((int)std::max<int64_t>(1, std::min(threads, items)))
    {
        const simd::FlushDenormals flush;
        std::unique_ptr<Scratch> scratch;
        try {
            scratch.reset(new Scratch(make()));
        } catch (...) {
#pragma omp atomic write
            failed = true;
        }
#pragma omp barrier
        if (!failed) {  // the same for all threads: it no longer changes
#pragma omp for schedule(static)
            for (int64_t i = 0; i < items; i++) body(i, *scratch);
        }
    }
    if (failed) throw std::bad_alloc();
}

// Calls body(i), without scratch.
template <typename Body>
void for_each(int64_t items, int64_t threads, const Body& body) {
    for_each(items, threads, [] { return 0; }, [&](int64_t i, int) { body(i); });
}

// The result of an exported function: 0, or 1 if there was not enough memory for its scratch.
template <typename Body>
int guarded(const Body& body) {
    try {
        body();
    } catch (const std::bad_alloc&) {
        return 1;
    } catch (const std::length_error&) {  // thrown by a vector
        return 1;
    }
    return 0;
}

}  // namespace threads
