// Steps that are done for several groups of rows at a time: a vector has one number of each of them.
//
// There is a version of everything for each width of the vectors of processors.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>

#define INLINE static inline __attribute__((always_inline))

enum Profile : int64_t { GAUSSIAN, MATERN_1_2, MATERN_3_2, MATERN_5_2, RATIONAL_QUADRATIC };

// Numbers BIAS + k, with k an integer, have k in the last bits of their mantissa.
template <typename T>
struct Format;
template <>
struct Format<double> {
    typedef int64_t bits;
    static constexpr int MANTISSA = 52, ONE = 1023;
    static constexpr double BIAS = 6755399441055744.0, LEAST = -700.0;
};
template <>
struct Format<float> {
    typedef int32_t bits;
    static constexpr int MANTISSA = 23, ONE = 127;
    static constexpr float BIAS = 12582912.0f, LEAST = -86.0f;
};

template <typename T, int WIDTH>
struct Lanes {
    typedef Format<T> F;
    typedef T V __attribute__((vector_size(WIDTH)));
    typedef typename F::bits I __attribute__((vector_size(WIDTH)));
    static constexpr int LANES = WIDTH / sizeof(T);
    static constexpr T LOG2_HIGH = T(0.693145751953125), LOG2_LOW = T(1.42860682030941723212e-6);

    // exp(x) = 2^k exp(r) of x <= 0, with |r| <= log(2) / 2.
    INLINE V exponential(V x) {
        constexpr T TERMS[] = {1.0,          1.0,           1.0 / 2,        1.0 / 6,         1.0 / 24,
                               1.0 / 120,    1.0 / 720,     1.0 / 5040,     1.0 / 40320,     1.0 / 362880,
                               1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};
        constexpr int DEGREE = sizeof(T) == 8 ? 13 : 7;
        x = x < F::LEAST ? V{} + F::LEAST : x;
        const V shifted = x * T(1.4426950408889634) + F::BIAS, k = shifted - F::BIAS;
        const V r = (x - k * LOG2_HIGH) - k * LOG2_LOW;
        V sum = V{} + TERMS[DEGREE];
#pragma GCC unroll 16
        for (int term = DEGREE - 1; term >= 0; term--) sum = sum * r + TERMS[term];
        return (V)((I)sum + ((I)shifted << F::MANTISSA));
    }

    // log(1 + x) of x >= 0: that of 1 + x = 2^k m by the series of the inverse hyperbolic tangent, and of the remainder.
    INLINE V log_of_one_plus(V x) {
        const V whole = x + T(1), one = V{} + T(1), bias = V{} + F::BIAS;
        const I fraction = ((I)whole & (((I{} + 1) << F::MANTISSA) - 1)) | (I)one;
        const I is_large = (V)fraction > T(1.4142135623730951);
        const V m = is_large ? (V)fraction * T(0.5) : (V)fraction;
        const V k = (V)((I)bias + (((I)whole >> F::MANTISSA) - F::ONE - is_large)) - bias;
        const V f = (m - T(1)) / (m + T(1)), square = f * f;
        V sum = V{};
#pragma GCC unroll 16
        for (int term = 10; term > 0; term--) sum = (sum + T(1.0 / (2 * term + 1))) * square;
        return k * LOG2_HIGH + (T(2) * f * (sum + T(1)) + (k * LOG2_LOW + (x - (whole - T(1))) / whole));
    }

    INLINE V root(V x) {
        for (int lane = 0; lane < LANES; lane++) x[lane] = std::sqrt(x[lane]);
        return x;
    }

    // From squared distances in place f, the slopes -2 f', and of a rational quadratic kernel df / d alpha.
    INLINE void profile(int64_t profile, double alpha, int64_t count, V *value, V *slope, V *of_alpha) {
        if (profile == GAUSSIAN)
            for (int64_t e = 0; e < count; e++) value[e] = slope[e] = exponential(value[e] * T(-0.5));
        else if (profile == MATERN_1_2)
            for (int64_t e = 0; e < count; e++) {
                const V distance = root(value[e]), decay = exponential(-distance);
                slope[e] = distance > T(0) ? decay / distance : V{};
                value[e] = decay;
            }
        else if (profile == MATERN_3_2)
            for (int64_t e = 0; e < count; e++) {
                const V distance = root(value[e] * T(3)), decay = exponential(-distance);
                slope[e] = decay * T(3);
                value[e] = (distance + T(1)) * decay;
            }
        else if (profile == MATERN_5_2)
            for (int64_t e = 0; e < count; e++) {
                const V distance = root(value[e] * T(5)), decay = exponential(-distance);
                slope[e] = (distance + T(1)) * decay * T(5.0 / 3);
                value[e] = (distance + T(1) + value[e] * T(5.0 / 3)) * decay;
            }
        else
            for (int64_t e = 0; e < count; e++) {
                const V part = value[e] * T(0.5 / alpha), logarithm = log_of_one_plus(part);
                value[e] = exponential(logarithm * T(-alpha));
                slope[e] = value[e] / (part + T(1));
                of_alpha[e] = value[e] - slope[e] - value[e] * logarithm;
            }
    }

    // The inputs (n, q) of rows of each group, less those of the last one: small numbers keep their digits.
    INLINE void read(const T *points, int64_t n, int64_t q, const int64_t *const *ids, V *z) {
        for (int64_t i = n - 1; i >= 0; i--) {
            const T *row[LANES];
            for (int lane = 0; lane < LANES; lane++) row[lane] = points + ids[lane][i] * q;
            for (int64_t k = 0; k < q; k++) {
                V x;
                for (int lane = 0; lane < LANES; lane++) x[lane] = row[lane][k];
                z[i * q + k] = i < n - 1 ? x - z[(n - 1) * q + k] : x;
            }
        }
        for (int64_t k = 0; k < q; k++) z[(n - 1) * q + k] = V{};
    }

    // The squared distances of row i to itself and those before.
    INLINE void distances(const V *z, int64_t q, int64_t i, V *squared) {
        const V *const own = z + i * q;
        int64_t j = 0;
        for (; j + 4 <= i; j += 4) {  // four at a time: their sums do not wait for each other
            const V *r0 = z + j * q, *r1 = r0 + q, *r2 = r1 + q, *r3 = r2 + q;
            V s0 = V{}, s1 = V{}, s2 = V{}, s3 = V{};
            for (int64_t k = 0; k < q; k++) {
                const V x = own[k], d0 = x - r0[k], d1 = x - r1[k], d2 = x - r2[k], d3 = x - r3[k];
                s0 += d0 * d0, s1 += d1 * d1, s2 += d2 * d2, s3 += d3 * d3;
            }
            squared[j] = s0, squared[j + 1] = s1, squared[j + 2] = s2, squared[j + 3] = s3;
        }
        for (; j <= i; j++) {
            V sum = V{};
            for (int64_t k = 0; k < q; k++) sum += (own[k] - z[j * q + k]) * (own[k] - z[j * q + k]);
            squared[j] = sum;
        }
    }

    // sum_j w_j (z_j - own) of all n rows z.
    INLINE void differences(const V *z, int64_t q, int64_t n, const V *w, const V *own, V *sum) {
        V total = V{};
        for (int64_t j = 0; j < n; j++) total += w[j];
        int64_t k = 0;
        for (; k + 4 <= q; k += 4) {
            V s0 = V{}, s1 = V{}, s2 = V{}, s3 = V{};
            for (int64_t j = 0; j < n; j++) {
                const V x = w[j], *const r = z + j * q + k;
                s0 += x * r[0], s1 += x * r[1], s2 += x * r[2], s3 += x * r[3];
            }
            sum[k] = s0 - total * own[k], sum[k + 1] = s1 - total * own[k + 1];
            sum[k + 2] = s2 - total * own[k + 2], sum[k + 3] = s3 - total * own[k + 3];
        }
        for (; k < q; k++) {
            V s = V{};
            for (int64_t j = 0; j < n; j++) s += w[j] * z[j * q + k];
            sum[k] = s - total * own[k];
        }
    }

    // Row j of L, or of white residuals, from row j of A, which it replaces, and which is zero before ``first``; the
    // rows of L before ``known`` are known.
    INLINE void eliminate(V *matrix, V *row, const V *inverse, int64_t first, int64_t known) {
        int64_t i = first;
        for (; i + 4 <= known; i += 4) {  // four columns at a time: their sums do not wait for each other
            V *r0 = matrix + i * (i + 1) / 2, *r1 = r0 + i + 1, *r2 = r1 + i + 2, *r3 = r2 + i + 3;
            V s0 = row[i], s1 = row[i + 1], s2 = row[i + 2], s3 = row[i + 3];
            for (int64_t k = first; k < i; k++) {
                const V x = row[k];
                s0 -= x * r0[k], s1 -= x * r1[k], s2 -= x * r2[k], s3 -= x * r3[k];
            }
            row[i] = s0 *= inverse[i];
            row[i + 1] = s1 = (s1 - s0 * r1[i]) * inverse[i + 1];
            row[i + 2] = s2 = (s2 - s0 * r2[i] - s1 * r2[i + 1]) * inverse[i + 2];
            row[i + 3] = (s3 - s0 * r3[i] - s1 * r3[i + 1] - s2 * r3[i + 2]) * inverse[i + 3];
        }
        for (; i < known; i++) {
            const V *other = matrix + i * (i + 1) / 2;
            V sum = row[i];
            for (int64_t k = first; k < i; k++) sum -= row[k] * other[k];
            row[i] = sum * inverse[i];
        }
    }

    // L from A, which it replaces, and one over its diagonal; row j is zero before ``begin[j]``. Says where there is L.
    INLINE I factor(V *matrix, int64_t n, const int64_t *begin, V *inverse) {
        I is_factor = I{} - 1;
        for (int64_t j = 0; j < n; j++) {
            V *const row = matrix + j * (j + 1) / 2;
            eliminate(matrix, row, inverse, begin[j], j);
            V pivot = row[j];
            for (int64_t k = begin[j]; k < j; k++) pivot -= row[k] * row[k];
            is_factor &= pivot > T(0);
            inverse[j] = T(1) / root(pivot);
        }
        return is_factor;
    }

    // A^-1 from L, by L^-1 in an array whose upper triangle is zero. Their rows are ``stride`` apart, a multiple of 4.
    INLINE void invert(const V *matrix, const V *inverse, int64_t n, int64_t stride, V *lower, V *full) {
        for (int64_t j = 0; j < n; j++) {
            const V *const row = matrix + j * (j + 1) / 2, factor = -inverse[j];
            V *const own = lower + j * stride;
            for (int64_t i = 0; i < j; i += 4) {
                V s0 = V{}, s1 = V{}, s2 = V{}, s3 = V{};
                for (int64_t k = i; k < j; k++) {
                    const V x = row[k], *const r = lower + k * stride + i;
                    s0 += x * r[0], s1 += x * r[1], s2 += x * r[2], s3 += x * r[3];
                }
                own[i] = s0 * factor, own[i + 1] = s1 * factor, own[i + 2] = s2 * factor, own[i + 3] = s3 * factor;
            }
            own[j] = inverse[j];
        }
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j <= i; j += 4) {
                V s0 = V{}, s1 = V{}, s2 = V{}, s3 = V{};
                for (int64_t k = i; k < n; k++) {
                    const V x = lower[k * stride + i], *const r = lower + k * stride + j;
                    s0 += x * r[0], s1 += x * r[1], s2 += x * r[2], s3 += x * r[3];
                }
                V *const own = full + i * stride + j, *const other = full + j * stride + i;
                own[0] = other[0] = s0, own[1] = other[stride] = s1;
                own[2] = other[2 * stride] = s2, own[3] = other[3 * stride] = s3;
            }
    }

    // A^-1 x and A^-1 y of vectors that are zero but from ``low`` to ``high``.
    INLINE void multiply(const V *full, int64_t n, int64_t stride, int64_t low, int64_t high, const V *x, const V *y,
                         V *by_x, V *by_y) {
        for (int64_t i = 0; i < n; i += 4) {
            const V *r0 = full + i * stride, *r1 = r0 + stride, *r2 = r1 + stride, *r3 = r2 + stride;
            V s0 = V{}, s1 = V{}, s2 = V{}, s3 = V{}, t0 = V{}, t1 = V{}, t2 = V{}, t3 = V{};
            for (int64_t j = low; j < high; j++) {
                const V u = x[j], v = y[j];
                s0 += r0[j] * u, s1 += r1[j] * u, s2 += r2[j] * u, s3 += r3[j] * u;
                t0 += r0[j] * v, t1 += r1[j] * v, t2 += r2[j] * v, t3 += r3[j] * v;
            }
            by_x[i] = s0, by_x[i + 1] = s1, by_x[i + 2] = s2, by_x[i + 3] = s3;
            by_y[i] = t0, by_y[i + 1] = t1, by_y[i + 2] = t2, by_y[i + 3] = t3;
        }
    }

    // A^-1 x and A^-1 y in place, from the factor of A.
    INLINE void substitute(const V *matrix, const V *inverse, int64_t n, const int64_t *begin, V *x, V *y) {
        for (int64_t i = 0; i < n; i++) {
            const V *const row = matrix + i * (i + 1) / 2;
            V s = x[i], t = y[i];
            for (int64_t k = begin[i]; k < i; k++) s -= row[k] * x[k], t -= row[k] * y[k];
            x[i] = s * inverse[i], y[i] = t * inverse[i];
        }
        for (int64_t i = n - 1; i >= 0; i--) {
            const V *const row = matrix + i * (i + 1) / 2, s = x[i] *= inverse[i], t = y[i] *= inverse[i];
            for (int64_t k = begin[i]; k < i; k++) x[k] -= row[k] * s, y[k] -= row[k] * t;
        }
    }

    // Adds the gradients of inputs z of ``used`` groups, from those in the kernel of pairs of rows times its slopes.
    // There is room for arrays (n, n) and (n, q).
    INLINE void add_gradients(const V *by_pair, int64_t n, int64_t q, const V *z, const int64_t *const *ids,
                              int64_t used, V *square, V *of_z, T *of_points) {
        for (int64_t i = 0, e = 0; i < n; i++, e++) {
            for (int64_t j = 0; j < i; j++, e++) square[i * n + j] = square[j * n + i] = by_pair[e];
            square[i * n + i] = V{};
        }
        for (int64_t i = 0; i < n; i++) differences(z, q, n, square + i * n, z + i * q, of_z + i * q);
        for (int64_t lane = 0; lane < used; lane++)
            for (int64_t i = 0; i < n; i++)
                for (int64_t k = 0; k < q; k++) of_points[ids[lane][i] * q + k] += of_z[i * q + k][lane];
    }
};

#if defined(__x86_64__)
template <template <typename, int> class Rows, typename T, typename Groups>
__attribute__((target("avx2,fma"))) int with_avx2(const Groups &groups) {
    return Rows<T, 32>::run(groups);
}
template <template <typename, int> class Rows, typename T, typename Groups>
__attribute__((target("avx512f,avx512dq,avx512vl,avx2,fma"))) int with_avx512(const Groups &groups) {
    return Rows<T, 64>::run(groups);
}
#endif

// Solves groups by the widest vectors of the processor.
template <template <typename, int> class Rows, typename T, typename Groups>
int solve(const Groups &groups) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return with_avx512<Rows, T>(groups);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return with_avx2<Rows, T>(groups);
#endif
    return Rows<T, 16>::run(groups);
}
