// The last row of each group of rows, predicted from the rows before it with a stationary kernel of scaled inputs z:
//
//   A = c K + diag(s) = L L^T,   K_ij = f(|z_i - z_j|^2),   error = L_nn (L^-1 r)_n,   variance = L_nn^2,
//
// for residuals r of several outputs, each with its own scale c and noise variances s; and the gradients of the sum of
// the log densities of all errors, normal or of Student's t. With w = A^-1 e_n, and with the weights b of the residuals
// before the last, (b_1, ...) = A_<n^-1 r_<n and b_n = 0, where g and h are the slopes of a log density in the error and
// in its variance v:
//
//   d error = v w^T (dr - dA b),   d variance = v^2 w^T dA w,   d log p = g v w^T dr + u^T dA w,   u = h v^2 w - g v b.
//
// An infinite noise variance marks a cell that is not known: it tells nothing, and as a last one has no gradient.
//
// A vector has one number of each of several groups, and every step is done for all of them at once. There is a version
// of everything for each width of the vectors of processors. Python imports an empty module and calls it by ctypes.

#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>

#define INLINE static inline __attribute__((always_inline))

enum Profile : int64_t { GAUSSIAN, MATERN_1_2, MATERN_3_2, MATERN_5_2, RATIONAL_QUADRATIC };

template <typename T>
struct Groups {
    int64_t count, size, inputs, outputs;  // B, n, q, T
    int64_t profile;
    double alpha;           // of the rational quadratic kernel
    double tails;           // one over the degrees of freedom of Student's t; 0 for normal densities
    const int64_t *rows;    // (B, n), of 0 to M - 1
    const T *z;             // (M, q)
    const T *residual;      // (M, T)
    const T *noise;         // (M, T)
    const T *scale;         // (T,)
    T *error, *variance;    // (B, T)
    T *of_z, *of_residual;  // gradients, which are added to these numbers; none where they are null
    T *of_noise, *of_scale, *of_alpha;
};

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
struct LastRows {
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
    INLINE void profile(const Groups<T> &g, int64_t count, V *value, V *slope, V *of_alpha) {
        if (g.profile == GAUSSIAN)
            for (int64_t e = 0; e < count; e++) value[e] = slope[e] = exponential(value[e] * T(-0.5));
        else if (g.profile == MATERN_1_2)
            for (int64_t e = 0; e < count; e++) {
                const V distance = root(value[e]), decay = exponential(-distance);
                slope[e] = distance > T(0) ? decay / distance : V{};
                value[e] = decay;
            }
        else if (g.profile == MATERN_3_2)
            for (int64_t e = 0; e < count; e++) {
                const V distance = root(value[e] * T(3)), decay = exponential(-distance);
                slope[e] = decay * T(3);
                value[e] = (distance + T(1)) * decay;
            }
        else if (g.profile == MATERN_5_2)
            for (int64_t e = 0; e < count; e++) {
                const V distance = root(value[e] * T(5)), decay = exponential(-distance);
                slope[e] = (distance + T(1)) * decay * T(5.0 / 3);
                value[e] = (distance + T(1) + value[e] * T(5.0 / 3)) * decay;
            }
        else
            for (int64_t e = 0; e < count; e++) {
                const V part = value[e] * T(0.5 / g.alpha), logarithm = log_of_one_plus(part);
                value[e] = exponential(logarithm * T(-g.alpha));
                slope[e] = value[e] / (part + T(1));
                of_alpha[e] = value[e] - slope[e] - value[e] * logarithm;
            }
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

    // Row j of L, or of white residuals, from row j of A, which it replaces; the first ``known`` rows of L are known.
    INLINE void eliminate(V *matrix, V *row, const V *inverse, int64_t known) {
        int64_t i = 0;
        for (; i + 4 <= known; i += 4) {  // four columns at a time: their sums do not wait for each other
            V *r0 = matrix + i * (i + 1) / 2, *r1 = r0 + i + 1, *r2 = r1 + i + 2, *r3 = r2 + i + 3;
            V s0 = row[i], s1 = row[i + 1], s2 = row[i + 2], s3 = row[i + 3];
            for (int64_t k = 0; k < i; k++) {
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
            for (int64_t k = 0; k < i; k++) sum -= row[k] * other[k];
            row[i] = sum * inverse[i];
        }
    }

    INLINE int run(const Groups<T> &g) {
        const int64_t n = g.size, q = g.inputs, outputs = g.outputs, entries = n * (n + 1) / 2;
        const bool has_gradient = g.of_z;
        const int64_t vectors = 2 * n * q + 4 * entries + (4 + 2 * outputs) * n + outputs;
        void *memory;
        if (posix_memalign(&memory, 64, vectors * sizeof(V))) return 1;
        V *const z = (V *)memory, *const of_z = z + n * q, *const kernel = of_z + n * q, *const slope = kernel + entries;
        V *const by_alpha = slope + entries, *const matrix = by_alpha + entries, *const white = matrix + entries;
        V *const noise = white + n, *const inverse = noise + n, *const weight = inverse + n;
        V *const left = weight + n, *const right = left + n * outputs;
        V *const of_scale = right + n * outputs;
        V of_alpha = V{};
        for (int64_t t = 0; t < outputs; t++) of_scale[t] = V{};

        for (int64_t first = 0; first < g.count; first += LANES) {
            const int64_t used = g.count - first < LANES ? g.count - first : LANES;
            const int64_t *ids[LANES];
            for (int lane = 0; lane < LANES; lane++) ids[lane] = g.rows + (first + (lane < used ? lane : 0)) * n;

            for (int lane = 0; lane < LANES; lane++) {  // less the last row: small numbers keep their digits
                const T *const last = g.z + ids[lane][n - 1] * q;
                for (int64_t i = 0; i < n; i++)
                    for (int64_t k = 0; k < q; k++) z[i * q + k][lane] = g.z[ids[lane][i] * q + k] - last[k];
            }
            for (int64_t i = 0; i < n; i++) distances(z, q, i, kernel + i * (i + 1) / 2);
            profile(g, entries, kernel, slope, by_alpha);

            for (int64_t t = 0; t < outputs; t++) {
                const T scale = g.scale[t];
                for (int64_t i = 0; i < n; i++)
                    for (int lane = 0; lane < LANES; lane++) {
                        white[i][lane] = g.residual[ids[lane][i] * outputs + t];
                        noise[i][lane] = g.noise[ids[lane][i] * outputs + t];
                    }
                for (int lane = used; lane < LANES; lane++) noise[n - 1][lane] = std::numeric_limits<T>::infinity();
                for (int64_t e = 0; e < entries; e++) matrix[e] = kernel[e] * scale;
                for (int64_t j = 0; j < n; j++) {
                    V *const row = matrix + j * (j + 1) / 2;
                    eliminate(matrix, row, inverse, j);
                    V pivot = row[j] + noise[j];
                    for (int64_t k = 0; k < j; k++) pivot -= row[k] * row[k];
                    row[j] = pivot;  // L_jj^2: only its inverse root is needed
                    inverse[j] = T(1) / root(pivot);
                }
                eliminate(matrix, white, inverse, n);
                const V variance = matrix[entries - 1];
                const I is_known = variance < std::numeric_limits<T>::infinity();
                const V error = is_known ? white[n - 1] * root(variance) : V{};
                for (int lane = 0; lane < used; lane++) {
                    g.error[(first + lane) * outputs + t] = error[lane];
                    g.variance[(first + lane) * outputs + t] = variance[lane];
                }
                if (!has_gradient) continue;

                const T tails = g.tails;
                const V v = is_known ? variance : V{} + T(1);
                const V by_error = (T(1) + tails) * error / (v + tails * error * error);
                const V by_variance = is_known ? (error * by_error / v - T(1) / v) * T(0.5) : V{};

                V *const solved = right + t * n, *const both = left + t * n;
                for (int64_t i = 0; i < n; i++) weight[i] = white[i], solved[i] = V{};
                weight[n - 1] = V{};
                solved[n - 1] = inverse[n - 1];
                for (int64_t k = n - 1; k >= 0; k--) {
                    const V *const row = matrix + k * (k + 1) / 2, x = weight[k] *= inverse[k], y = solved[k] *= inverse[k];
                    for (int64_t i = 0; i < k; i++) weight[i] -= row[i] * x, solved[i] -= row[i] * y;
                }
                const V of_weight = by_error * v, of_solved = by_variance * v * v;
                V of_matrix = V{};
                for (int64_t i = 0; i < n; i++) {
                    both[i] = of_solved * solved[i] + of_weight * weight[i];
                    const V by_residual = -of_weight * solved[i], by_noise = both[i] * solved[i];
                    of_matrix += noise[i] < std::numeric_limits<T>::infinity() ? by_noise * noise[i] : V{};
                    both[i] *= scale;
                    for (int lane = 0; lane < used; lane++) {
                        g.of_residual[ids[lane][i] * outputs + t] += by_residual[lane];
                        g.of_noise[ids[lane][i] * outputs + t] += by_noise[lane];
                    }
                }
                of_scale[t] += both[n - 1] / (scale * scale) - of_matrix / scale;  // c K w = e_n - s w
            }
            if (!has_gradient) continue;

            for (int64_t i = 0, e = 0; i < n; i++, e++)
                for (int64_t j = 0; j < i; j++, e++) {
                    V by_kernel = V{};
                    for (int64_t t = 0; t < outputs * n; t += n)
                        by_kernel += left[t + i] * right[t + j] + left[t + j] * right[t + i];
                    if (g.profile == RATIONAL_QUADRATIC) of_alpha += by_kernel * by_alpha[e];
                    kernel[e] = by_kernel * slope[e];
                }
            V *const by_distance = slope;  // both triangles, over what is needed no more
            for (int64_t i = 0, e = 0; i < n; i++, e++) {
                for (int64_t j = 0; j < i; j++, e++) by_distance[i * n + j] = by_distance[j * n + i] = kernel[e];
                by_distance[i * n + i] = V{};
            }
            for (int64_t i = 0; i < n; i++) differences(z, q, n, by_distance + i * n, z + i * q, of_z + i * q);
            for (int lane = 0; lane < used; lane++)
                for (int64_t i = 0; i < n; i++)
                    for (int64_t k = 0; k < q; k++) g.of_z[ids[lane][i] * q + k] += of_z[i * q + k][lane];
        }
        if (has_gradient)
            for (int lane = 0; lane < LANES; lane++) {
                for (int64_t t = 0; t < outputs; t++) g.of_scale[t] += of_scale[t][lane];
                *g.of_alpha += of_alpha[lane];
            }
        free(memory);
        return 0;
    }
};

#if defined(__x86_64__)
template <typename T>
__attribute__((target("avx2,fma"))) int with_avx2(const Groups<T> &groups) {
    return LastRows<T, 32>::run(groups);
}
template <typename T>
__attribute__((target("avx512f,avx512dq,avx512vl,avx2,fma"))) int with_avx512(const Groups<T> &groups) {
    return LastRows<T, 64>::run(groups);
}
#endif

template <typename T>
int run(const Groups<T> &groups) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return with_avx512(groups);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return with_avx2(groups);
#endif
    return LastRows<T, 16>::run(groups);
}

// Both return whether there was no memory.
extern "C" Py_EXPORTED_SYMBOL int last_rows_float64(const Groups<double> *groups) { return run(*groups); }
extern "C" Py_EXPORTED_SYMBOL int last_rows_float32(const Groups<float> *groups) { return run(*groups); }

static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_last_rows"};
PyMODINIT_FUNC PyInit__last_rows() { return PyModule_Create(&module); }
