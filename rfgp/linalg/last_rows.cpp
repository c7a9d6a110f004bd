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
// Python imports an empty module and calls it by ctypes.

#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include "lanes.h"

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

template <typename T, int WIDTH>
struct LastRows : Lanes<T, WIDTH> {
    typedef Lanes<T, WIDTH> Own;
    typedef typename Own::V V;
    typedef typename Own::I I;
    static constexpr int LANES = Own::LANES;

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

            Own::read(g.z, n, q, ids, z);
            for (int64_t i = 0; i < n; i++) Own::distances(z, q, i, kernel + i * (i + 1) / 2);
            Own::profile(g.profile, g.alpha, entries, kernel, slope, by_alpha);

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
                    Own::eliminate(matrix, row, inverse, 0, j);
                    V pivot = row[j] + noise[j];
                    for (int64_t k = 0; k < j; k++) pivot -= row[k] * row[k];
                    row[j] = pivot;  // L_jj^2: only its inverse root is needed
                    inverse[j] = T(1) / Own::root(pivot);
                }
                Own::eliminate(matrix, white, inverse, 0, n);
                const V variance = matrix[entries - 1];
                const I is_known = variance < std::numeric_limits<T>::infinity();
                const V error = is_known ? white[n - 1] * Own::root(variance) : V{};
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
            V *const square = slope;  // over what is needed no more
            Own::add_gradients(kernel, n, q, z, ids, used, square, of_z, g.of_z);
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

// Both return whether there was no memory.
extern "C" Py_EXPORTED_SYMBOL int last_rows_float64(const Groups<double> *groups) {
    return solve<LastRows, double>(*groups);
}
extern "C" Py_EXPORTED_SYMBOL int last_rows_float32(const Groups<float> *groups) {
    return solve<LastRows, float>(*groups);
}

static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_last_rows"};
PyMODINIT_FUNC PyInit__last_rows() { return PyModule_Create(&module); }
