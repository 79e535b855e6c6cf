// Large results written past the caches, as memcpy does: what will not stay in a cache need not be read into one
// before it is overwritten, which is a good part of the traffic of a kernel that is bound by memory.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace simd {

// Whether a kernel that moves this many bytes will find little of them in the last cache again: half of it is others'.
inline bool exceeds_caches(int64_t bytes) {
    // sysconf(_SC_LEVEL3_CACHE_SIZE) would add up the caches of other cores, whose users are others.
    static const int64_t kilobytes = [] {
        int64_t found = 0;
        std::ifstream("/sys/devices/system/cpu/cpu0/cache/index3/size") >> found;
        return found > 0 ? found : 32 * 1024;
    }();
    return bytes > kilobytes * 1024 / 2;
}

// Copies n bytes past the caches, if both addresses and n are multiples of 16; otherwise as usual.
// Call `fence` before another thread reads them.
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

// Asks for n bytes that will be read soon; the address need not be valid.
inline void prefetch(const void* from, int64_t n) {
    for (int64_t i = 0; i < n; i += 64) __builtin_prefetch(static_cast<const char*>(from) + i);
}

}  // namespace simd
