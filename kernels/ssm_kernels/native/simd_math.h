// exp, decays, log1p and sigmoid of simd::Vec. Included by simd.h.
//
// Polynomials are minimax fits (Remez) with exact constant terms. So exp(0) is 1, and slow decays, with exponents close
// to 0, are correct to the last bit. Errors: at most 2 ulp in float, 1e-15 relative in double.
#pragma once

namespace simd {

// sum_i c[i] x^i
template <typename T, int n> SIMD_INLINE Vec<T> polynomial(Vec<T> x, const T (&c)[n]) {
    Vec<T> p(c[n - 1]);
#pragma GCC unroll 16
    for (int i = n - 2; i >= 0; i--) p = fma(p, x, Vec<T>(c[i]));
    return p;
}

template <typename T> struct Constants;
template <> struct Constants<float> {
    static constexpr int mantissa_bits = 23, exponent_bias = 127;
    static constexpr float round = 12582912.0f;  // 1.5 * 2^23: after adding it, the low bits are the rounded integer
    static constexpr float exp_lowest = -104.0f, exp_highest = 89.0f;  // outside: 0 and infinity
    static constexpr float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
};
template <> struct Constants<double> {
    static constexpr int mantissa_bits = 52, exponent_bias = 1023;
    static constexpr double round = 6755399441055744.0;  // 1.5 * 2^52
    static constexpr double exp_lowest = -746.0, exp_highest = 710.0;
    static constexpr double ln2_high = 6.93145751953125e-1, ln2_low = 1.42860682030941723212e-6;
};
constexpr double log2_e = 1.4426950408889634074, ln_2 = 0.69314718055994530942;

// The same in place for K vectors. All vectors do one step before the next step.
template <typename T, int n, int K> SIMD_INLINE void polynomial(Vec<T> (&x)[K], const T (&c)[n]) {
    Vec<T> p[K];
#pragma GCC unroll 16
    for (int k = 0; k < K; k++) p[k] = Vec<T>(c[n - 1]);
#pragma GCC unroll 16
    for (int i = n - 2; i >= 0; i--)
#pragma GCC unroll 16
        for (int k = 0; k < K; k++) p[k] = fma(p[k], x[k], Vec<T>(c[i]));
#pragma GCC unroll 16
    for (int k = 0; k < K; k++) x[k] = p[k];
}

// 2^f for |f| <= 1/2, in place.
template <int K> SIMD_INLINE void exp2_fraction(Vec<float> (&f)[K]) {
    static constexpr float c[] = {1.0f, 0.6931469776f, 0.2402224208f, 0.05550733739f, 0.009671512746f, 0.001326472896f};
    polynomial(f, c);
}
template <int K> SIMD_INLINE void exp2_fraction(Vec<double> (&f)[K]) {
    static constexpr double c[] = {1.0, 0.69314718055994532581, 0.24022650695910131259, 0.055504108664820083114,
        0.009618129107594120366, 0.0013333558146774651711, 0.00015403530457111742116, 0.000015252733493094077383,
        1.3215435282475387552e-6, 1.0178199586901190828e-7, 7.0737832220952703245e-9, 4.4347689071988417209e-10};
    polynomial(f, c);
}
// e^r for |r| <= ln(2) / 2, in place.
template <int K> SIMD_INLINE void exp_fraction(Vec<float> (&r)[K]) {
    static constexpr float c[] = {1.0f, 1.0000000321651266f, 0.4999999420899028f, 0.16666431262073750f,
        0.041668002044402689f, 0.0083741553705088586f, 0.0013843653307663801f};
    polynomial(r, c);
}
template <int K> SIMD_INLINE void exp_fraction(Vec<double> (&r)[K]) {
    static constexpr double c[] = {1.0, 1.0000000000000000236, 0.50000000000000124936, 0.16666666666666217199,
        0.041666666666517829699, 0.0083333333335497098649, 0.0013888888946352386013, 0.00019841269436755103631,
        0.000024801490636820596106, 2.7557626737193342696e-6, 2.7631033930715489544e-7, 2.4991419381207593453e-8};
    polynomial(r, c);
}

#if defined(SIMD_AVX512)
SIMD_INLINE Vec<float> round(Vec<float> x) {
    return Vec<float>((Types<float>::Raw)_mm512_roundscale_ps((__m512)x.v, 0x08));
}
SIMD_INLINE Vec<double> round(Vec<double> x) {
    return Vec<double>((Types<double>::Raw)_mm512_roundscale_pd((__m512d)x.v, 0x08));
}
// p * 2^n for any integer n, and infinite n.
SIMD_INLINE Vec<float> scale(Vec<float> p, Vec<float> n) {
    return Vec<float>((Types<float>::Raw)_mm512_scalef_ps((__m512)p.v, (__m512)n.v));
}
SIMD_INLINE Vec<double> scale(Vec<double> p, Vec<double> n) {
    return Vec<double>((Types<double>::Raw)_mm512_scalef_pd((__m512d)p.v, (__m512d)n.v));
}
// The rounded n = x y of a decay, and the factor that stands for 2^n (here n itself). The lowest n gives 0.
template <typename T> constexpr int lowest_exponent = -2 * Constants<T>::exponent_bias;
template <typename T> SIMD_INLINE Vec<T> round_product(Vec<T> x, Vec<T> y, Vec<T>& factor) {
    return factor = round(x * y);
}
template <typename T> SIMD_INLINE Vec<T> scale_decay(Vec<T> p, Vec<T> factor) { return scale(p, factor); }
// x - round(x), or 0 for an infinite x.
SIMD_INLINE Vec<float> fraction(Vec<float> x) {
    return Vec<float>((Types<float>::Raw)_mm512_reduce_ps((__m512)x.v, 0x08));
}
SIMD_INLINE Vec<double> fraction(Vec<double> x) {
    return Vec<double>((Types<double>::Raw)_mm512_reduce_pd((__m512d)x.v, 0x08));
}
#else
template <typename T> SIMD_INLINE Vec<T> round(Vec<T> x) {
    return (x + Vec<T>(Constants<T>::round)) - Vec<T>(Constants<T>::round);
}
// 2^n for an integer n, -exponent_bias <= n <= exponent_bias. The lowest n gives 0.
template <typename T> SIMD_INLINE Vec<T> power_of_two(Vec<T> n) {
    typedef typename Types<T>::RawInt I;
    const Vec<T> biased = n + Vec<T>(Constants<T>::round + (T)Constants<T>::exponent_bias);
    return Vec<T>((typename Types<T>::Raw)((I)biased.v << Constants<T>::mantissa_bits));
}
template <typename T> SIMD_INLINE Vec<T> scale(Vec<T> p, Vec<T> n) {  // two steps, for correct denormals
    const Vec<T> half = round(n * Vec<T>((T)0.5));
    return p * power_of_two(half) * power_of_two(n - half);
}
// The rounded n = x y of a decay, and the factor 2^n. The lowest n gives 0.
template <typename T> constexpr int lowest_exponent = -Constants<T>::exponent_bias;
template <typename T> SIMD_INLINE Vec<T> round_product(Vec<T> x, Vec<T> y, Vec<T>& factor) {
    typedef typename Types<T>::RawInt I;
    const Vec<T> shift(Constants<T>::round + (T)Constants<T>::exponent_bias), shifted = fma(x, y, shift);
    factor = Vec<T>((typename Types<T>::Raw)((I)shifted.v << Constants<T>::mantissa_bits));
    return shifted - shift;
}
template <typename T> SIMD_INLINE Vec<T> scale_decay(Vec<T> p, Vec<T> factor) { return p * factor; }
#endif

// 2^x in place for K vectors of exponents of decays: x <= 0, or -infinity (above 127 it may overflow early). Results
// below 2^-126 (2^-1022 in double) may be 0. A single vector would wait for its own results, because processors look
// ahead only a limited number of instructions. So K vectors are computed together.
template <typename T, int K> SIMD_INLINE void exp2_decay(Vec<T> (&x)[K]) {
    Vec<T> n[K];
#if defined(SIMD_AVX512)
    Vec<T> f[K];
#pragma GCC unroll 16
    for (int k = 0; k < K; k++) f[k] = fraction(x[k]);
#pragma GCC unroll 16
    for (int k = 0; k < K; k++) n[k] = x[k] - f[k], x[k] = f[k];
#else
    constexpr T lowest = -T(Constants<T>::exponent_bias);
#pragma GCC unroll 16
    for (int k = 0; k < K; k++) x[k] = min(Vec<T>(1 - lowest), max(Vec<T>(lowest), x[k]));
#pragma GCC unroll 16
    for (int k = 0; k < K; k++) n[k] = round(x[k]);
#pragma GCC unroll 16
    for (int k = 0; k < K; k++) x[k] = x[k] - n[k];
#endif
    exp2_fraction(x);
#if defined(SIMD_AVX512)
#pragma GCC unroll 16
    for (int k = 0; k < K; k++) x[k] = scale(x[k], n[k]);
#else
#pragma GCC unroll 16
    for (int k = 0; k < K; k++) x[k] = x[k] * power_of_two(n[k]);
#endif
}
template <typename T> SIMD_INLINE Vec<T> exp2_decay(Vec<T> x) {
    Vec<T> one[1] = {x};
    exp2_decay(one);
    return one[0];
}

// x - n ln(2), in place. The first product is exact, because the high part of ln(2) has few bits.
template <typename T, int K> SIMD_INLINE void exp_remainder(Vec<T> (&x)[K], const Vec<T>* n) {
#pragma GCC unroll 16
    for (int k = 0; k < K; k++) x[k] = fma(n[k], Vec<T>(-Constants<T>::ln2_high), x[k]);
#pragma GCC unroll 16
    for (int k = 0; k < K; k++) x[k] = fma(n[k], Vec<T>(-Constants<T>::ln2_low), x[k]);
}

// e^x
template <typename T> SIMD_INLINE Vec<T> exp(Vec<T> x) {
    x = min(Vec<T>(Constants<T>::exp_highest), max(Vec<T>(Constants<T>::exp_lowest), x));
    const Vec<T> n = round(x * Vec<T>((T)log2_e));
    Vec<T> r[1] = {x};
    exp_remainder(r, &n);
    exp_fraction(r);
    return scale(r[0], n);
}

// e^x in place for K log decays: x <= 0, or -infinity (above 88 it may overflow early). Results below the smallest
// normal number may be 0. The K vectors are computed together, as in exp2_decay.
template <typename T, int K> SIMD_INLINE void exp_decay(Vec<T> (&x)[K]) {
    constexpr T lowest = T(lowest_exponent<T> * ln_2), highest = T((Constants<T>::exponent_bias + 1) * ln_2);
    Vec<T> n[K], factor[K];
#pragma GCC unroll 16
    for (int k = 0; k < K; k++) x[k] = min(Vec<T>(highest), max(Vec<T>(lowest), x[k]));
#pragma GCC unroll 16
    for (int k = 0; k < K; k++) n[k] = round_product(x[k], Vec<T>((T)log2_e), factor[k]);
    exp_remainder(x, n);
    exp_fraction(x);
#pragma GCC unroll 16
    for (int k = 0; k < K; k++) x[k] = scale_decay(x[k], factor[k]);
}
template <typename T> SIMD_INLINE Vec<T> exp_decay(Vec<T> x) {
    Vec<T> one[1] = {x};
    exp_decay(one);
    return one[0];
}

// ln(1 + x) for 0 <= x <= 1, as 2 atanh(x / (2 + x)).
SIMD_INLINE Vec<float> log1p(Vec<float> x) {
    static constexpr float c[] = {0.33333337810963745f, 0.19999438872948777f, 0.14308442375208670f,
        0.10713829069529810f, 0.12150467080639130f};
    const Vec<float> s = x / (x + Vec<float>(2.0f)), s2 = s * s, twice = s + s;
    return fma(twice * s2, polynomial(s2, c), twice);
}
SIMD_INLINE Vec<double> log1p(Vec<double> x) {
    static constexpr double c[] = {0.33333333333333333229, 0.20000000000000081378, 0.14285714285695031806,
        0.11111111113287203624, 0.090909089501446580377, 0.076923134079808210139, 0.066665134947645151727,
        0.058851279216024840298, 0.052290711952277121564, 0.050400981622192930608, 0.029219890884074899968,
        0.079943415209834658924};
    const Vec<double> s = x / (x + Vec<double>(2.0)), s2 = s * s, twice = s + s;
    return fma(twice * s2, polynomial(s2, c), twice);
}

// 1 / (1 + e^-x), in place. Results below the smallest normal number may be 0.
template <typename T, int K> SIMD_INLINE void sigmoid(Vec<T> (&x)[K]) {
    const Vec<T> one((T)1);
#pragma GCC unroll 16
    for (int k = 0; k < K; k++) x[k] = -x[k];
    exp_decay(x);
#pragma GCC unroll 16
    for (int k = 0; k < K; k++) x[k] = one / (one + x[k]);
}
template <typename T> SIMD_INLINE Vec<T> sigmoid(Vec<T> x) {
    Vec<T> single[1] = {x};
    sigmoid(single);
    return single[0];
}

}  // namespace simd
