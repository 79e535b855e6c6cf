// Streaming stores write large results past the caches, as memcpy does. Normal stores first read each line into a
// cache, which is a large part of the traffic of a memory-bound kernel.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace simd {

// Whether this number of bytes does not fit into the last cache. Other processes use half of that cache.
inline bool exceeds_caches(int64_t bytes) {
    // sysconf(_SC_LEVEL3_CACHE_SIZE) would add the caches of other cores, which other processes use.
    static const int64_t kilobytes = [] {
        int64_t found = 0;
        std::ifstream("/sys/devices/system/cpu/cpu0/cache/index3/size") >> found;
        return found > 0 ? found : 32 * 1024;
    }();
    return bytes > kilobytes * 1024 / 2;
}

// Copies n bytes past the caches if both addresses and n are multiples of 16, otherwise with memcpy.
// Call `fence` before another thread reads the result.
inline void write_past(void* to, const void* from, int64_t n) {
#if defined(__SSE2__)
    if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | static_cast<uintptr_t>(n)) % 16 == 0) {
        for (int64_t i = 0; i < n / 16; ++i) {
            _mm_stream_si128(static_cast<__m128i*>(to) + i, _mm_load_si128(static_cast<const __m128i*>(from) + i));
        }
        return;
    }
#endif
    std::memcpy(to, from, n);
}

inline void fence() {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

enum Use { READ, WRITE };

// Prefetches n bytes. The address may be invalid.
template <Use use = READ>
inline void prefetch(const void* from, int64_t n) {
    for (int64_t i = 0; i < n; i += 64) __builtin_prefetch(static_cast<const char*>(from) + i, use == WRITE);
}

}  // namespace simd
