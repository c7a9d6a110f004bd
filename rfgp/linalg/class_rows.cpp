// The functions of Dirichlet classes at the last row of each group, given the labels of the rows before it, with a
// stationary kernel of scaled inputs; and the log of their mean softmax for its own label, with gradients.
//
// In class c a row of that label has the target t1 and the noise variance s1; others have t0 and s0. With
//
//   A = scale K + s0 I,   z = A^-1 k,   a = A^-1 1,   d = s0 - s1,
//   M = I / d - (A^-1 where labels are equal, else 0),   u = M^-1 z
//
// of the rows before the last the weights of their targets are w_c = z + A^-1 (u of rows of the class, else 0), which
// are u / d at rows of the class. With a prior mean mu_c, r_c = t0 - mu_c and sums over the rows of a class
//
//   mean_c = mu_c + r_c (1^T z + sum a u) + (t1 - t0) / d sum u,   variance_c = k_nn - k^T z - sum u z.
//
// One vector u has all classes: M is one matrix for each class that occurs.
//
// Targets less means, times the inverse covariance, are x_c = r_c a + A^-1 (p of rows of the class, else 0), with
// p = M^-1 (r a + (t1 - t0) / d), which are (p - t1 + t0) / d at rows of the class. With slopes g and h in means and
// variances
//
//   d log p = sum_c (h_c w + g_c x)^T dA w   for   w = (-w_c, 1),   x = (x_c, 0).
//
// All classes that do not occur have z and r_c a: together they are one more term. Rows are ordered by class, so that
// most of M is zero.

#include "lanes.h"

#include <limits>

struct ClassGroups {
    int64_t count, size, inputs, classes, nodes;  // B, n, q, C, S
    int64_t profile;
    double alpha;  // of the rational quadratic kernel
    double scale, inside, outside, inside_noise, outside_noise;
    const int64_t *rows;    // (B, n), of 0 to M - 1
    const int64_t *labels;  // (M,), of 0 to C - 1
    const double *points;   // (M, q)
    const double *means;    // (C,)
    const double *normals;  // (S, C), draws of standard normals for the mean softmax
    double *mean, *variance;  // (B, C)
    double *density;          // (B,); not written where there are no normals
    double *of_points, *of_scale, *of_alpha, *of_targets, *of_means;  // gradients, which are added to these; or null
};

template <typename T, int WIDTH>
struct ClassRows : Lanes<T, WIDTH> {
    typedef Lanes<T, WIDTH> Own;
    typedef typename Own::V V;
    typedef typename Own::I I;
    static constexpr int LANES = Own::LANES;

    // Orders m rows of a lane by class, the most frequent one first, and returns how many classes there are. Slots are
    // the places of classes in this order: they have classes ``kinds``, and in all lanes rows from ``low`` to ``high``.
    // The slot of a row is that of its class, and begins with row ``begin`` or later.
    INLINE int64_t order(const int64_t *labels, const int64_t *rows, int64_t m, int lane, int64_t *counts,
                         int64_t *ordered, int64_t *kinds, V *slot, int64_t *begin, int64_t *low, int64_t *high) {
        int64_t slots = 0;
        for (int64_t i = 0; i < m; i++)
            if (counts[labels[rows[i]]]++ == 0) kinds[slots++] = labels[rows[i]];
        for (int64_t s = 1; s < slots; s++)
            for (int64_t p = s; p > 0 && counts[kinds[p]] > counts[kinds[p - 1]]; p--) {
                const int64_t kind = kinds[p];
                kinds[p] = kinds[p - 1], kinds[p - 1] = kind;
            }
        for (int64_t s = 0, start = 0; s < slots; s++) {
            const int64_t end = start + counts[kinds[s]];
            counts[kinds[s]] = start;  // from now on the place of its next row
            low[s] = start < low[s] ? start : low[s];
            high[s] = end > high[s] ? end : high[s];
            for (int64_t i = start; i < end; i++) {
                slot[i][lane] = T(s);
                begin[i] = start < begin[i] ? start : begin[i];
            }
            start = end;
        }
        for (int64_t i = 0; i < m; i++) ordered[counts[labels[rows[i]]]++] = rows[i];
        ordered[m] = rows[m];
        for (int64_t s = 0; s < slots; s++) counts[kinds[s]] = 0;
        return slots;
    }

    // The log of the mean softmax of normals for a class of each lane. Its slopes in their means and variances, times
    // ``share``, replace these.
    INLINE V mean_softmax(const ClassGroups &g, const int64_t *wanted, V share, V *mean, V *variance, V *values,
                          V *chosen) {
        const int64_t classes = g.classes, nodes = g.nodes;
        V best = V{} - std::numeric_limits<T>::infinity();
        for (int64_t c = 0; c < classes; c++) variance[c] = Own::root(variance[c] > T(0) ? variance[c] : V{});
        for (int64_t s = 0; s < nodes; s++) {
            V *const own = values + s * classes, top = V{} - std::numeric_limits<T>::infinity(), total = V{};
            for (int64_t c = 0; c < classes; c++) {
                own[c] = mean[c] + variance[c] * T(g.normals[s * classes + c]);
                top = own[c] > top ? own[c] : top;
            }
            for (int lane = 0; lane < LANES; lane++) chosen[s][lane] = own[wanted[lane]][lane];
            for (int64_t c = 0; c < classes; c++) total += own[c] = Own::exponential(own[c] - top);
            chosen[s] -= top + Own::log_of_one_plus(total - T(1));
            best = chosen[s] > best ? chosen[s] : best;
            const V inverse = T(1) / total;
            for (int64_t c = 0; c < classes; c++) own[c] *= inverse;
        }
        V sum = V{};
        for (int64_t s = 0; s < nodes; s++) sum += chosen[s] = Own::exponential(chosen[s] - best);
        const V density = best + Own::log_of_one_plus(sum - T(1)) - T(std::log(nodes));
        if (!g.of_points) return density;
        for (int64_t c = 0; c < classes; c++) mean[c] = V{};
        V *const by_deviation = values;  // of the first node, over its own probabilities
        for (int64_t s = 0; s < nodes; s++) {
            const V part = share * chosen[s] / sum;
            V *const own = values + s * classes;
            for (int64_t c = 0; c < classes; c++) own[c] *= -part;
            for (int lane = 0; lane < LANES; lane++) own[wanted[lane]][lane] += part[lane];
            for (int64_t c = 0; c < classes; c++) {
                const V slope = own[c] * T(g.normals[s * classes + c]);
                mean[c] += own[c];
                by_deviation[c] = s ? by_deviation[c] + slope : slope;
            }
        }
        for (int64_t c = 0; c < classes; c++)
            variance[c] = variance[c] > T(0) ? by_deviation[c] * T(0.5) / variance[c] : V{};
        return density;
    }

    INLINE int run(const ClassGroups &g) {
        const int64_t n = g.size, m = n - 1, q = g.inputs, classes = g.classes, entries = n * (n + 1) / 2;
        const int64_t stride = (n + 3) / 4 * 4;
        const bool has_gradient = g.of_points;
        const int64_t vectors = 2 * n * q + 4 * entries + 2 * stride * (stride + n + 6) + 4 * classes +
                                g.nodes * (classes + 1);
        const int64_t integers = LANES * 2 * n + classes + 4 * n;
        void *memory;
        if (posix_memalign(&memory, 64, vectors * sizeof(V) + integers * sizeof(int64_t))) return 1;
        V *const z = (V *)memory, *const of_z = z + n * q, *const kernel = of_z + n * q;
        V *const slope = kernel + entries, *const by_alpha = slope + entries, *const matrix = by_alpha + entries;
        V *const lower = matrix + entries, *const full = lower + stride * stride;
        V *const slot = full + stride * stride, *const inverse = slot + stride;
        V *const cross = inverse + stride, *const one = cross + stride, *const by_cross = one + stride;
        V *const by_one = by_cross + stride, *const u = by_one + stride, *const p = u + stride;
        V *const own_u = p + stride, *const own_p = own_u + stride, *const by_u = own_p + stride;
        V *const by_p = by_u + stride, *const left = by_p + stride, *const right = left + n * stride;
        V *const total = right + n * stride, *const mean = total + classes, *const variance = mean + classes;
        V *const of_means = variance + classes, *const chosen = of_means + classes, *const values = chosen + g.nodes;
        int64_t *const rows = (int64_t *)((V *)memory + vectors), *const kinds = rows + LANES * n;
        int64_t *const counts = kinds + LANES * n, *const begin = counts + classes, *const low = begin + n;
        int64_t *const high = low + n, *const zeros = high + n;
        const T apart = g.inside - g.outside, gap = 1.0 / (g.outside_noise - g.inside_noise);
        V of_scale = V{}, of_alpha = V{};
        V of_inside = V{}, of_outside = V{}, of_inside_noise = V{}, of_outside_noise = V{};
        for (int64_t e = 0; e < stride * stride; e++) lower[e] = V{};
        for (int64_t i = 0; i < n; i++) one[i] = V{} + T(1), zeros[i] = 0;
        for (int64_t c = 0; c < classes; c++) of_means[c] = V{}, counts[c] = 0;

        for (int64_t first = 0; first < g.count; first += LANES) {
            const int64_t used = g.count - first < LANES ? g.count - first : LANES;
            const int64_t *ids[LANES];
            int64_t slots = 0, found[LANES];
            for (int64_t i = 0; i < n; i++) begin[i] = low[i] = n, high[i] = 0;
            for (int lane = 0; lane < LANES; lane++) {
                const int64_t *const own = g.rows + (first + (lane < used ? lane : 0)) * n;
                int64_t *const ordered = rows + lane * n;
                ids[lane] = ordered;
                found[lane] = order(g.labels, own, m, lane, counts, ordered, kinds + lane * n, slot, begin, low, high);
                slots = found[lane] > slots ? found[lane] : slots;
            }

            Own::read(g.points, n, q, ids, z);
            for (int64_t i = 0; i < n; i++) Own::distances(z, q, i, kernel + i * (i + 1) / 2);
            Own::profile(g.profile, g.alpha, entries, kernel, slope, by_alpha);
            for (int64_t i = 0, e = 0; i < m; i++) {
                for (int64_t j = 0; j <= i; j++, e++) matrix[e] = kernel[e] * T(g.scale);
                matrix[e - 1] += T(g.outside_noise);
                cross[i] = kernel[m * n / 2 + i] * T(g.scale);
            }
            I is_known = Own::factor(matrix, m, zeros, inverse);
            Own::invert(matrix, inverse, m, stride, lower, full);
            Own::multiply(full, m, stride, 0, m, cross, one, by_cross, by_one);
            for (int64_t i = 0; i < m; i++) {
                for (int64_t j = begin[i]; j < i; j++)
                    matrix[i * (i + 1) / 2 + j] = slot[i] == slot[j] ? -full[i * stride + j] : V{};
                matrix[i * (i + 1) / 2 + i] = gap - full[i * stride + i];
                for (int lane = 0; lane < LANES; lane++) p[i][lane] = g.outside - g.means[g.labels[ids[lane][i]]];
                p[i] = p[i] * by_one[i] + apart * gap;
                u[i] = by_cross[i];
            }
            is_known &= Own::factor(matrix, m, begin, inverse);
            Own::substitute(matrix, inverse, m, begin, u, p);

            V sum = V{}, left_over = kernel[entries - 1] * T(g.scale);
            for (int64_t i = 0; i < m; i++) sum += by_cross[i], left_over -= cross[i] * by_cross[i];
            for (int64_t c = 0; c < classes; c++) total[c] = sum, mean[c] = V{}, variance[c] = left_over;
            for (int64_t s = 0; s < slots; s++) {
                V of_one = V{}, of_label = V{}, explained = V{};
                for (int64_t i = low[s]; i < high[s]; i++) {
                    const V x = slot[i] == T(s) ? u[i] : V{};
                    of_one += x * by_one[i], of_label += x, explained += x * by_cross[i];
                }
                for (int lane = 0; lane < LANES; lane++)
                    if (s < found[lane]) {
                        const int64_t c = kinds[lane * n + s];
                        total[c][lane] += of_one[lane], mean[c][lane] = of_label[lane];
                        variance[c][lane] -= explained[lane];
                    }
            }
            for (int64_t c = 0; c < classes; c++) {
                mean[c] = T(g.means[c]) + T(g.outside - g.means[c]) * total[c] + apart * gap * mean[c];
                variance[c] = is_known ? variance[c] : V{} + std::numeric_limits<T>::quiet_NaN();
            }
            for (int64_t lane = 0; lane < used; lane++)
                for (int64_t c = 0; c < classes; c++) {
                    g.mean[(first + lane) * classes + c] = mean[c][lane];
                    g.variance[(first + lane) * classes + c] = variance[c][lane];
                }
            if (!g.nodes) continue;

            int64_t wanted[LANES];
            V share = V{};
            for (int lane = 0; lane < LANES; lane++) wanted[lane] = g.labels[ids[lane][m]], share[lane] = lane < used;
            const V density = mean_softmax(g, wanted, share, mean, variance, values, chosen);
            for (int64_t lane = 0; lane < used; lane++)
                g.density[first + lane] = is_known[lane] ? density[lane] : std::numeric_limits<T>::quiet_NaN();
            if (!has_gradient) continue;

            V of_own = V{}, of_own_noise = V{};  // of the targets and noises of rows in their own classes
            for (int64_t c = 0; c < classes; c++) {
                of_means[c] += mean[c] * (T(1) - total[c]);
                of_outside += mean[c] * total[c];
            }
            for (int64_t s = 0; s < slots; s++) {
                V by_mean = V{}, by_variance = V{}, level = V{};
                for (int lane = 0; lane < LANES; lane++)
                    if (s < found[lane]) {
                        const int64_t c = kinds[lane * n + s];
                        by_mean[lane] = mean[c][lane], by_variance[lane] = variance[c][lane];
                        level[lane] = g.outside - g.means[c];
                        mean[c][lane] = variance[c][lane] = 0;
                    }
                for (int64_t i = low[s]; i < high[s]; i++) {
                    const I is_own = slot[i] == T(s);
                    own_u[i] = is_own ? u[i] : V{}, own_p[i] = is_own ? p[i] : V{};
                    const V w = own_u[i] * gap, x = (own_p[i] - apart) * gap;
                    of_own += by_mean * w, of_own_noise += (by_variance * w - by_mean * x) * w;
                }
                Own::multiply(full, m, stride, low[s], high[s], own_u, own_p, by_u, by_p);
                V *const l = left + s * stride, *const r = right + s * stride;
                for (int64_t i = 0; i < m; i++) {
                    r[i] = -by_cross[i] - by_u[i];
                    l[i] = by_variance * r[i] + by_mean * (level * by_one[i] + by_p[i]);
                }
                r[m] = V{} + T(1), l[m] = by_variance;
            }
            V rest = V{}, rest_of_one = V{};  // of classes that do not occur
            for (int64_t c = 0; c < classes; c++) {
                rest += variance[c];
                rest_of_one += mean[c] * T(g.outside - g.means[c]);
            }
            V *const l = left + slots * stride, *const r = right + slots * stride;
            for (int64_t i = 0; i < m; i++) r[i] = -by_cross[i], l[i] = rest * r[i] + rest_of_one * by_one[i];
            r[m] = V{} + T(1), l[m] = rest;
            of_inside += of_own, of_outside -= of_own;
            of_inside_noise += of_own_noise, of_outside_noise -= of_own_noise;

            for (int64_t i = 0, e = 0; i < n; i++, e++) {
                V of_own_row = V{};
                for (int64_t s = 0; s <= slots * stride; s += stride) of_own_row += left[s + i] * right[s + i];
                of_scale += of_own_row;
                if (i < m) of_outside_noise += of_own_row;
                for (int64_t j = 0; j < i; j += 4) {
                    V by[4] = {V{}, V{}, V{}, V{}};
                    for (int64_t s = 0; s <= slots * stride; s += stride) {
                        const V x = left[s + i], y = right[s + i], *const ls = left + s + j, *const rs = right + s + j;
                        by[0] += x * rs[0] + y * ls[0], by[1] += x * rs[1] + y * ls[1];
                        by[2] += x * rs[2] + y * ls[2], by[3] += x * rs[3] + y * ls[3];
                    }
                    for (int64_t k = 0; k < 4 && j + k < i; k++, e++) {
                        of_scale += by[k] * kernel[e];
                        if (g.profile == RATIONAL_QUADRATIC) of_alpha += by[k] * by_alpha[e] * T(g.scale);
                        kernel[e] = by[k] * slope[e] * T(g.scale);
                    }
                }
            }
            Own::add_gradients(kernel, n, q, z, ids, used, full, of_z, g.of_points);
        }
        if (has_gradient)
            for (int lane = 0; lane < LANES; lane++) {
                *g.of_scale += of_scale[lane], *g.of_alpha += of_alpha[lane];
                g.of_targets[0] += of_inside[lane], g.of_targets[1] += of_outside[lane];
                g.of_targets[2] += of_inside_noise[lane], g.of_targets[3] += of_outside_noise[lane];
                for (int64_t c = 0; c < classes; c++) g.of_means[c] += of_means[c][lane];
            }
        free(memory);
        return 0;
    }
};

// Returns whether there was no memory. The kernel of equal inputs is one.
extern "C" __attribute__((visibility("default"))) int class_rows(const ClassGroups *groups) {
    return solve<ClassRows, double>(*groups);
}
