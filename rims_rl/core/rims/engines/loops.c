/* The time loops of a RIM layer with LSTM cells, forward and backward: what torch_loops.py does in torch.
 *
 * Rows of a batch do not know of each other, so each thread takes some rows through all steps, and nobody waits. A RIM
 * that keeps its state costs little more than its share of the communication. c_loops.py compiles this with
 * -Dreal=float or -Dreal=double, and makes room for all tensors. Letters for sizes are those of torch_loops.py: T steps,
 * B batch, K RIMs, H units per RIM, N elements, n input heads of key size d and value size w, m communication heads of
 * key size e and value size v. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif
#define LANES ((long)(VECTOR_BYTES / sizeof(real)))
#define MAX_ROWS 6 /* of a tile: 6 x 2 sums, 2 vectors of weights and one of input fit into 16 registers */
#define MAX_PIECE 256
#define INLINE static inline __attribute__((always_inline))

typedef real vec __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(real)), may_alias));

typedef struct { /* a tensor: row b of RIM k at step t begins at `at + t * .t + k * .k + b * .b` */
    real *at;
    long t, k, b;
} rows;

typedef struct {
    long T, B, K, H, N, n, d, w, m, e, v, num_active, asleep;
    rows keep;                                 /* 0 where the state is set to zero before the step; or absent */
    rows keys, values, query, attention, read; /* of a set; attention (n, K, N + 1) for each row of the batch */
    rows probes, reads, null;                  /* of one element, see OneElement in reading.py */
    rows h_0, c_0, h, c, h_in, c_in;           /* the first state, after each step, and going into the step */
    rows active, gates, updated;                  /* updated: h before communication */
    rows qkv, p, received;                        /* p (m, K who listens, K who is heard) for each row of the batch */
    rows read_mask, message_mask;                /* of dropout, or absent: of what is read, and of what h gains by hearing */
    rows d_out, d_h, d_c, d_gates, d_message, d_qkv, d_query, d_keys, d_values, d_null;
    real *bias, *input_query, *weight_ih, *weight_hh, *comm_qkv, *comm_out; /* columns padded to whole vectors */
} layer;

INLINE real *row(const rows *s, long t, long k, long b) { return s->at + t * s->t + k * s->k + b * s->b; }

INLINE int is_active(const layer *l, long t, long k, long b) { return *row(&l->active, t, k, b) != 0; }

/* What RIMs do that are not active: keep their state, go on by themselves, or hear the others besides. */
enum { KEEP, DRIFT, LISTEN };

INLINE int moves(const layer *l, long t, long k, long b) { return l->asleep != KEEP || is_active(l, t, k, b); }

INLINE int hears(const layer *l, long t, long k, long b) { return l->asleep == LISTEN || is_active(l, t, k, b); }

/* Columns of packed weights: whole vectors, of whatever processor. */
INLINE long padded(long columns) {
    const long whole = PADDED_BYTES / sizeof(real);
    return (columns + whole - 1) / whole * whole;
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

INLINE vec load(const real *from, long left) {
    if (left >= LANES) return *(const vec *)from;
    vec x = {0};
    memcpy(&x, from, left * sizeof(real));
    return x;
}

INLINE void store(real *to, vec x, long left) {
    if (left >= LANES)
        *(vec *)to = x;
    else
        memcpy(to, &x, left * sizeof(real));
}

/* R rows and C vectors of columns of the product below; R, C and `add` are constants where this is inlined. */
INLINE void tile(const int add, const int R, const int C, real *const *a, long inner, const real *b, long stride,
                 real *const *out, long column, long columns) {
    vec sum[MAX_ROWS][4];
    for (int r = 0; r < R; r++)
        for (int j = 0; j < C; j++)
            sum[r][j] = add ? load(out[r] + column + j * LANES, columns - column - j * LANES) : (vec){0};
    for (long i = 0; i < inner; i++) {
        vec weights[4];
        for (int j = 0; j < C; j++) weights[j] = *(const vec *)(b + i * stride + column + j * LANES);
        for (int r = 0; r < R; r++)
            for (int j = 0; j < C; j++) sum[r][j] += a[r][i] * weights[j];
    }
    for (int r = 0; r < R; r++)
        for (int j = 0; j < C; j++) store(out[r] + column + j * LANES, sum[r][j], columns - column - j * LANES);
}

INLINE void tiles(const int add, const int R, const int C, real *const *a, long inner, const real *b, long stride,
                  real *const *out, long columns) {
    long column = 0;
    for (; column + (C - 1) * LANES < columns; column += C * LANES)
        tile(add, R, C, a, inner, b, stride, out, column, columns);
    for (; column < columns; column += LANES) tile(add, R, 1, a, inner, b, stride, out, column, columns);
}

/* out[r] = a[r] . b, or += if `add`, for all rows r. Rows of b are `stride` apart, and read in whole vectors. */
INLINE void product(const int add, long count, real *const *a, long inner, const real *b, long stride, real *const *out,
                    long columns) {
    while (count > 0) {
        const long blocks = (count + MAX_ROWS - 1) / MAX_ROWS, R = (count + blocks - 1) / blocks;
        switch (R) {
            case 1: tiles(add, 1, 4, a, inner, b, stride, out, columns); break;
            case 2: tiles(add, 2, 4, a, inner, b, stride, out, columns); break;
            case 3: tiles(add, 3, 2, a, inner, b, stride, out, columns); break;
            case 4: tiles(add, 4, 2, a, inner, b, stride, out, columns); break;
            case 5: tiles(add, 5, 2, a, inner, b, stride, out, columns); break;
            default: tiles(add, 6, 2, a, inner, b, stride, out, columns); break;
        }
        a += R, out += R, count -= R;
    }
}

static void set_product(long count, real *const *a, long inner, const real *b, long stride, real *const *out,
                        long columns) {
    product(0, count, a, inner, b, stride, out, columns);
}

static void add_product(long count, real *const *a, long inner, const real *b, long stride, real *const *out,
                        long columns) {
    product(1, count, a, inner, b, stride, out, columns);
}

/* Half a vector and a quarter, as wide as they can be on any processor. */
typedef real vec32 __attribute__((vector_size(32)));
typedef real vec16 __attribute__((vector_size(16)));

INLINE real total(vec x) {
    union {
        vec whole;
        vec32 half[(VECTOR_BYTES + 31) / 32];
        vec16 quarter[VECTOR_BYTES / 16];
        real lanes[LANES];
    } sum = {x};
    if (VECTOR_BYTES > 32) sum.half[0] += sum.half[VECTOR_BYTES > 32];
    if (VECTOR_BYTES > 16) sum.quarter[0] += sum.quarter[VECTOR_BYTES > 16];
    for (long half = 8 / sizeof(real); half > 0; half /= 2)
        for (long i = 0; i < half; i++) sum.lanes[i] += sum.lanes[i + half];
    return sum.lanes[0];
}

INLINE real dot(const real *a, const real *b, long size) {
    vec sums = {0};
    long i = 0;
    for (; i + LANES <= size; i += LANES) sums += *(const vec *)(a + i) * *(const vec *)(b + i);
    real sum = total(sums);
    for (; i < size; i++) sum += a[i] * b[i];
    return sum;
}

INLINE void add_scaled(real *out, real factor, const real *a, long size) {
#pragma omp simd
    for (long i = 0; i < size; i++) out[i] += factor * a[i];
}

INLINE void multiply(real *out, const real *a, long size) {
    for (long i = 0; i < size; i++) out[i] *= a[i];
}

INLINE void fill(real *out, real value, long size) {
    for (long i = 0; i < size; i++) out[i] = value;
}

INLINE void copy(real *out, const real *from, long size) { memcpy(out, from, size * sizeof(real)); }

/* ---- nonlinearities ---------------------------------------------------------------------------------------------- */

/* e^x. In float without branches, so that loops become vector code: x = n ln 2 + r, and a polynomial in r. */
INLINE real exponential(real x) {
    if (sizeof(real) == sizeof(double)) return (real)exp((double)x);
    float y = (float)x;
    y = y < -87.0f ? -87.0f : y;
    y = y > 88.0f ? 88.0f : y;
    const float shifted = y * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f; /* rounds to a whole number */
    const float r = (y - n * 0.693359375f) + n * 2.12194440e-4f;
    float e = 1.0f / 5040;
    e = e * r + 1.0f / 720;
    e = e * r + 1.0f / 120;
    e = e * r + 1.0f / 24;
    e = e * r + 1.0f / 6;
    e = e * r + 0.5f;
    e = e * r + 1.0f;
    e = e * r + 1.0f;
    union {
        float f;
        unsigned i;
    } power = {.f = shifted};
    power.i = (power.i << 23) + (127u << 23); /* the low bits of `shifted` are n */
    return (real)(e * power.f);
}

INLINE real sigmoid(real x) { return 1 / (1 + exponential(-x)); }

/* Over each of `count` rows of `size`, one behind the other. */
static void softmax(real *x, long count, long size) {
    for (long i = 0; i < count; i++) {
        real largest = x[i * size];
        for (long j = 1; j < size; j++) largest = x[i * size + j] > largest ? x[i * size + j] : largest;
        for (long j = 0; j < size; j++) x[i * size + j] -= largest;
    }
    for (long i = 0; i < count * size; i++) x[i] = exponential(x[i]);
    for (long i = 0; i < count; i++) {
        real sum = 0;
        for (long j = 0; j < size; j++) sum += x[i * size + j];
        for (long j = 0; j < size; j++) x[i * size + j] /= sum;
    }
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* Which rows of RIM k: all of them, or those in which it is active, moves or hears. */
enum { ALL, ACTIVE, MOVING, HEARING };

INLINE int among(const layer *l, int which, long t, long k, long b) {
    return which == ALL || (which == MOVING ? moves(l, t, k, b) : which == HEARING ? hears(l, t, k, b) : is_active(l, t, k, b));
}

/* `out` = `in` times the weights of RIM k, for all its rows, or += for some of them. */
static void transform(const layer *l, long t, long k, long begin, long end, int which, const rows *in, long inner,
                      const real *weights, const rows *out, long columns) {
    real *a[end - begin], *o[end - begin];
    long count = 0;
    for (long b = begin; b < end; b++)
        if (among(l, which, t, k, b)) a[count] = row(in, t, k, b), o[count++] = row(out, t, k, b);
    const long stride = padded(columns);
    (which == ALL ? set_product : add_product)(count, a, inner, weights + k * inner * stride, stride, o, columns);
}

/* Attention of all RIMs over a set, and their attention on null, averaged over heads. */
static void attend(const layer *l, long t, long b, real *null) {
    const long K = l->K, N = l->N, n = l->n, d = l->d;
    const real scale = 1 / sqrt((double)d);
    real *attention = row(&l->attention, t, 0, b);
    for (long head = 0; head < n; head++)
        for (long k = 0; k < K; k++) {
            real *logits = attention + (head * K + k) * (N + 1);
            const real *query = row(&l->query, t, k, b) + head * d, *keys = row(&l->keys, t, 0, b) + head * d;
            for (long i = 0; i < N; i++) logits[i] = scale * dot(query, keys + i * n * d, d);
            logits[N] = 0;
        }
    softmax(attention, n * K, N + 1);
    fill(null, 0, K);
    for (long head = 0; head < n; head++)
        for (long k = 0; k < K; k++) null[k] += attention[(head * K + k) * (N + 1) + N] / n;
}

static void read_set(const layer *l, long t, long k, long b) {
    const long n = l->n, w = l->w;
    real *read = row(&l->read, t, k, b);
    fill(read, 0, n * w);
    for (long head = 0; head < n; head++) {
        const real *attention = row(&l->attention, t, 0, b) + (head * l->K + k) * (l->N + 1);
        for (long i = 0; i < l->N; i++)
            add_scaled(read + head * w, attention[i], row(&l->values, t, 0, b) + (i * n + head) * w, w);
    }
    if (l->read_mask.at) multiply(read, row(&l->read_mask, t, k, b), n * w);
}

/* Who is active: those with the least attention on null, of equal ones the first. */
static void compete(const layer *l, long t, long b, const real *null) {
    for (long k = 0; k < l->K; k++) {
        long before = 0;
        for (long j = 0; j < l->K; j++) before += null[j] < null[k] || (null[j] == null[k] && j < k);
        *row(&l->active, t, k, b) = before < l->num_active;
    }
}

static void lstm_cell(real *gates, const real *c, real *c_new, real *updated, long H) {
    real *i = gates, *f = gates + H, *g = gates + 2 * H, *o = gates + 3 * H;
    for (long j = 0; j < H; j++) g[j] += g[j];
    for (long j = 0; j < 4 * H; j++) gates[j] = sigmoid(gates[j]);
    for (long j = 0; j < H; j++) g[j] = 2 * g[j] - 1; /* tanh(x) = 2 sigmoid(2 x) - 1 */
    for (long j = 0; j < H; j++) c_new[j] = f[j] * c[j] + i[j] * g[j];
    for (long j = 0; j < H; j++) updated[j] = o[j] * (2 * sigmoid(2 * c_new[j]) - 1);
}

/* What RIMs hear of all of them. Rows of p of those who do not are of no use. */
static void listen(const layer *l, long t, long b) {
    const long K = l->K, e = l->e, v = l->v, size = 2 * e + v;
    const real scale = 1 / sqrt((double)e);
    real *p = row(&l->p, t, 0, b), *weights[K], *received[K];
    fill(p, 0, l->m * K * K);
    for (long head = 0; head < l->m; head++)
        for (long k = 0; k < K; k++) {
            const real *query = row(&l->qkv, t, k, b) + head * size, *keys = row(&l->qkv, t, 0, b) + head * size + e;
            for (long j = 0; j < K && hears(l, t, k, b); j++)
                p[(head * K + k) * K + j] = scale * dot(query, keys + j * l->qkv.k, e);
        }
    softmax(p, l->m * K, K);
    for (long head = 0; head < l->m; head++) {
        long count = 0;
        for (long k = 0; k < K; k++)
            if (hears(l, t, k, b))
                weights[count] = p + (head * K + k) * K, received[count++] = row(&l->received, t, k, b) + head * v;
        set_product(count, weights, K, row(&l->qkv, t, 0, b) + head * size + 2 * e, l->qkv.k, received, v);
    }
}

/* Add what RIMs received to their h. */
static void hear(const layer *l, long t, long k, long begin, long end) {
    const long H = l->H, values = l->m * l->v;
    if (!l->message_mask.at) {
        transform(l, t, k, begin, end, HEARING, &l->received, values, l->comm_out, &l->h, H);
        return;
    }
    real *gain = calloc((end - begin) * H, sizeof(real));
    const rows of_gain = {gain - begin * H, 0, 0, H};
    transform(l, t, k, begin, end, HEARING, &l->received, values, l->comm_out, &of_gain, H);
    for (long b = begin; b < end; b++) {
        multiply(row(&of_gain, t, k, b), row(&l->message_mask, t, k, b), H);
        add_scaled(row(&l->h, t, k, b), 1, row(&of_gain, t, k, b), H);
    }
    free(gain);
}

static void forward_rows(const layer *l, long begin, long end) {
    const long K = l->K, H = l->H, G = 4 * H, V = l->n * l->w, queries = l->n * l->d;
    const long size = l->m * (2 * l->e + l->v);

    for (long t = 0; t < l->T; t++) {
        for (long k = 0; k < K; k++) {
            for (long b = begin; b < end; b++) {
                const int reset = l->keep.at && *row(&l->keep, t, k, b) == 0;
                const real *h = t ? row(&l->h, t - 1, k, b) : row(&l->h_0, t, k, b);
                const real *c = t ? row(&l->c, t, k, b) : row(&l->c_0, t, k, b);
                for (long j = 0; j < H; j++) row(&l->h_in, t, k, b)[j] = reset ? 0 : h[j];
                for (long j = 0; j < H; j++) row(&l->c_in, t, k, b)[j] = reset ? 0 : c[j];
            }
            if (l->query.at) transform(l, t, k, begin, end, ALL, &l->h_in, H, l->input_query, &l->query, queries);
        }
        for (long b = begin; b < end; b++) {
            real null[K];
            if (l->query.at) attend(l, t, b, null);
            for (long k = 0; k < K && l->probes.at; k++)
                null[k] = *row(&l->null, t, k, b) = sigmoid(dot(row(&l->h_in, t, k, b), row(&l->probes, t, k, b), H));
            if (l->num_active < K) compete(l, t, b, null);
        }

        for (long k = 0; k < K; k++) {
            for (long b = begin; b < end; b++) {
                if (!moves(l, t, k, b)) {
                    copy(row(&l->c, t, k, b), row(&l->c_in, t, k, b), H);
                    copy(row(&l->updated, t, k, b), row(&l->h_in, t, k, b), H);
                    continue;
                }
                real *gates = row(&l->gates, t, k, b);
                copy(gates, l->bias + k * padded(G), G);
                if (!is_active(l, t, k, b)) continue; /* it reads nothing */
                if (l->query.at)
                    read_set(l, t, k, b);
                else
                    add_scaled(gates, l->probes.at ? 1 - *row(&l->null, t, k, b) : 1, row(&l->reads, t, k, b), G);
            }
            if (l->query.at) transform(l, t, k, begin, end, ACTIVE, &l->read, V, l->weight_ih, &l->gates, G);
            transform(l, t, k, begin, end, MOVING, &l->h_in, H, l->weight_hh, &l->gates, G);
            for (long b = begin; b < end; b++) {
                real *updated = row(&l->updated, t, k, b);
                if (moves(l, t, k, b))
                    lstm_cell(row(&l->gates, t, k, b), row(&l->c_in, t, k, b), row(&l->c, t, k, b), updated, H);
                copy(row(&l->h, t, k, b), updated, H);
            }
            if (l->qkv.at) transform(l, t, k, begin, end, ALL, &l->updated, H, l->comm_qkv, &l->qkv, size);
        }
        if (!l->qkv.at) continue;
        for (long b = begin; b < end; b++) listen(l, t, b);
        for (long k = 0; k < K; k++) hear(l, t, k, begin, end);
    }
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* From the gradient of what RIMs received, zero where they do not hear, to that of queries, keys and values. */
static void listen_backward(const layer *l, long t, long b, const rows *d_message) {
    const long K = l->K, e = l->e, v = l->v, size = 2 * e + v;
    const real scale = 1 / sqrt((double)e);
    /* (listens, is received), and the other way round; p the other way round */
    real d_logits[K * K], turned[K * K], p_turned[K * K];
    real *d_of[K], *turned_of[K], *p_of[K], *d_query[K], *d_key[K], *d_value[K];
    for (long head = 0; head < l->m; head++) {
        const real *p = row(&l->p, t, 0, b) + head * K * K, *qkv = row(&l->qkv, t, 0, b) + head * size;
        for (long k = 0; k < K; k++) {
            real sum = 0;
            fill(d_logits + k * K, 0, K);
            for (long j = 0; j < K && hears(l, t, k, b); j++) {
                const real d_p = dot(row(d_message, t, k, b) + head * v, qkv + j * l->qkv.k + 2 * e, v);
                d_logits[k * K + j] = p[k * K + j] * d_p;
                sum += d_logits[k * K + j];
            }
            for (long j = 0; j < K; j++) {
                d_logits[k * K + j] = scale * (d_logits[k * K + j] - p[k * K + j] * sum);
                turned[j * K + k] = d_logits[k * K + j];
                p_turned[j * K + k] = p[k * K + j];
            }
            d_of[k] = d_logits + k * K, turned_of[k] = turned + k * K, p_of[k] = p_turned + k * K;
            d_query[k] = row(&l->d_qkv, t, k, b) + head * size, d_key[k] = d_query[k] + e, d_value[k] = d_key[k] + e;
        }
        set_product(K, d_of, K, qkv + e, l->qkv.k, d_query, e);
        set_product(K, turned_of, K, qkv, l->qkv.k, d_key, e);
        set_product(K, p_of, K, row(d_message, t, 0, b) + head * v, d_message->k, d_value, v);
    }
}

/* Into d_gates, from the gradients of h and c after the cell; d_h and d_c become what passes the gates by. */
static void lstm_backward(const layer *l, long t, long k, long b) {
    const long H = l->H;
    const real *gates = row(&l->gates, t, k, b), *c_in = row(&l->c_in, t, k, b);
    real *d_gates = row(&l->d_gates, t, k, b), *d_h = row(&l->d_h, t, k, b), *d_c = row(&l->d_c, t, k, b);
#pragma omp simd
    for (long j = 0; j < H; j++) {
        const real i = gates[j], f = gates[H + j], g = gates[2 * H + j], o = gates[3 * H + j];
        const real tanh_c = 2 * sigmoid(2 * (f * c_in[j] + i * g)) - 1;
        const real d = d_c[j] + d_h[j] * o * (1 - tanh_c * tanh_c);
        d_gates[j] = d * g * i * (1 - i);
        d_gates[H + j] = d * c_in[j] * f * (1 - f);
        d_gates[2 * H + j] = d * i * (1 - g * g);
        d_gates[3 * H + j] = d_h[j] * tanh_c * o * (1 - o);
        d_c[j] = d * f;
        d_h[j] = 0;
    }
}

/* From the gradient of what a RIM read of a set, `d_read` (n * w), to those of its query, of keys and of values. */
static void read_backward(const layer *l, long t, long k, long b, const real *d_read) {
    const long N = l->N, n = l->n, d = l->d, w = l->w;
    const real scale = 1 / sqrt((double)d), *query = row(&l->query, t, k, b);
    real *d_query = row(&l->d_query, t, k, b), d_logits[N];
    fill(d_query, 0, n * d);
    for (long head = 0; head < n; head++) {
        const real *attention = row(&l->attention, t, 0, b) + (head * l->K + k) * (N + 1);
        real sum = 0;
        for (long i = 0; i < N; i++) {
            const long at = (i * n + head) * w;
            d_logits[i] = attention[i] * dot(d_read + head * w, row(&l->values, t, 0, b) + at, w);
            sum += d_logits[i];
            add_scaled(row(&l->d_values, t, 0, b) + at, attention[i], d_read + head * w, w);
        }
        for (long i = 0; i < N; i++) {
            const real d_logit = scale * (d_logits[i] - attention[i] * sum);
            const long at = (i * n + head) * d;
            add_scaled(d_query + head * d, d_logit, row(&l->keys, t, 0, b) + at, d);
            add_scaled(row(&l->d_keys, t, 0, b) + at, d_logit, query + head * d, d);
        }
    }
}

static void backward_rows(const layer *l, long begin, long end) {
    const long K = l->K, H = l->H, G = 4 * H, V = l->n * l->w, queries = l->n * l->d;
    const long size = l->m * (2 * l->e + l->v), values = l->m * l->v, width = values > V ? values : V;
    const long room = (end - begin) * K * width;
    real *scratch = malloc((room + LANES) * sizeof(real)); /* gradients of what was received, then of what was read */
    const rows of_read = {scratch - begin * K * width, 0, width, K * width};

    for (long t = l->T - 1; t >= 0; t--) {
        for (long k = 0; k < K; k++)
            for (long b = begin; b < end; b++) add_scaled(row(&l->d_h, t, k, b), 1, row(&l->d_out, t, k, b), H);

        if (l->qkv.at) {
            fill(scratch, 0, room);
            for (long k = 0; k < K; k++) {
                for (long b = begin; b < end; b++)
                    if (hears(l, t, k, b)) {
                        copy(row(&l->d_message, t, k, b), row(&l->d_h, t, k, b), H);
                        if (l->message_mask.at) multiply(row(&l->d_message, t, k, b), row(&l->message_mask, t, k, b), H);
                    }
                transform(l, t, k, begin, end, HEARING, &l->d_message, H, l->comm_out, &of_read, values);
            }
            for (long b = begin; b < end; b++) listen_backward(l, t, b, &of_read);
            for (long k = 0; k < K; k++) {
                real *a[end - begin], *o[end - begin];
                for (long b = begin; b < end; b++)
                    a[b - begin] = row(&l->d_qkv, t, k, b), o[b - begin] = row(&l->d_h, t, k, b);
                add_product(end - begin, a, size, l->comm_qkv + k * size * padded(H), padded(H), o, H);
            }
        }

        for (long b = begin; b < end && l->query.at; b++) {
            fill(row(&l->d_keys, t, 0, b), 0, l->N * queries);
            fill(row(&l->d_values, t, 0, b), 0, l->N * V);
        }
        if (l->query.at) fill(scratch, 0, room);
        for (long k = 0; k < K; k++) {
            for (long b = begin; b < end; b++)
                if (moves(l, t, k, b))
                    lstm_backward(l, t, k, b);
                else
                    fill(row(&l->d_gates, t, k, b), 0, G);
            transform(l, t, k, begin, end, MOVING, &l->d_gates, G, l->weight_hh, &l->d_h, H);
            if (l->query.at) {
                transform(l, t, k, begin, end, ACTIVE, &l->d_gates, G, l->weight_ih, &of_read, V);
                for (long b = begin; b < end; b++)
                    if (is_active(l, t, k, b)) {
                        if (l->read_mask.at) multiply(row(&of_read, t, k, b), row(&l->read_mask, t, k, b), V);
                        read_backward(l, t, k, b, row(&of_read, t, k, b));
                    }
                transform(l, t, k, begin, end, ACTIVE, &l->d_query, queries, l->input_query, &l->d_h, H);
            } else if (l->probes.at)
                for (long b = begin; b < end; b++) {
                    const real null = *row(&l->null, t, k, b); /* the attention to x is 1 - null */
                    real *d_null = row(&l->d_null, t, k, b);
                    *d_null = 0;
                    if (!is_active(l, t, k, b)) continue;
                    *d_null = null * (null - 1) * dot(row(&l->d_gates, t, k, b), row(&l->reads, t, k, b), G);
                    add_scaled(row(&l->d_h, t, k, b), *d_null, row(&l->probes, t, k, b), H);
                }
        }

        for (long b = begin; b < end && l->keep.at; b++)
            for (long k = 0; k < K && *row(&l->keep, t, k, b) == 0; k++) {
                fill(row(&l->d_h, t, k, b), 0, H);
                fill(row(&l->d_c, t, k, b), 0, H);
            }
    }
    free(scratch);
}

/* ---- what c_loops.py calls --------------------------------------------------------------------------------------- */

/* Weights (count, R, C) with their columns padded to whole vectors; turned, they are (count, C, R) with R padded. */
void pack(const real *from, long count, long R, long C, int turned, real *to) {
    for (long k = 0; k < count; k++)
        for (long r = 0; r < R; r++)
            for (long c = 0; c < C; c++)
                to[turned ? (k * C + c) * padded(R) + r : (k * R + r) * padded(C) + c] = from[(k * R + r) * C + c];
}

/* In pieces of at most MAX_PIECE rows, so that what is on the stack stays small. */
static long pieces(const layer *l, long threads) {
    const long least = (l->B + MAX_PIECE - 1) / MAX_PIECE;
    return least > threads ? least : threads;
}

void forward(const layer *l, long threads) {
    const long count = pieces(l, threads);
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (long i = 0; i < count; i++) forward_rows(l, l->B * i / count, l->B * (i + 1) / count);
}

/* d_h and d_c hold the gradients of the last state, and at the end those of the first; other gradients are filled. */
void backward(const layer *l, long threads) {
    const long count = pieces(l, threads);
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (long i = 0; i < count; i++) backward_rows(l, l->B * i / count, l->B * (i + 1) / count);
}

/* R rows and two vectors of columns of the product below; R is a constant where this is inlined. */
INLINE void outer_tile(const int R, const real **a, long i, const real **b, long column, long count, real *out,
                       long O) {
    vec sum[MAX_ROWS][2];
    const long second = column + LANES < O ? LANES : 0; /* else the first vector again */
    for (int r = 0; r < R; r++) sum[r][0] = sum[r][1] = (vec){0};
    for (long j = 0; j < count; j++) {
        const vec one = *(const vec *)(b[j] + column), two = *(const vec *)(b[j] + column + second);
        for (int r = 0; r < R; r++) sum[r][0] += a[j][i + r] * one, sum[r][1] += a[j][i + r] * two;
    }
    for (int r = 0; r < R; r++) {
        store(out + r * O + column, sum[r][0], O - column);
        if (second) store(out + r * O + column + LANES, sum[r][1], O - column - LANES);
    }
}

/* out (K, I, O): x (K, T, B, I) times d (K, T, B, O), summed over steps and rows, all or some of them. */
void weight_gradient(const layer *l, long threads, const rows *x, long I, const rows *d, long O, int which, real *out) {
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (long k = 0; k < l->K; k++) {
        const real **a = malloc(2 * l->T * l->B * sizeof(real *)), **b = a + l->T * l->B;
        long count = 0;
        for (long t = 0; t < l->T; t++)
            for (long r = 0; r < l->B; r++)
                if (among(l, which, t, k, r)) a[count] = row(x, t, k, r), b[count++] = row(d, t, k, r);
        for (long column = 0; column < O; column += 2 * LANES) {
            long i = 0;
            real *here = out + k * I * O;
            for (long left = I; left > 0; left = I - i) {
                const long blocks = (left + MAX_ROWS - 1) / MAX_ROWS, R = (left + blocks - 1) / blocks;
                switch (R) {
                    case 1: outer_tile(1, a, i, b, column, count, here + i * O, O); break;
                    case 2: outer_tile(2, a, i, b, column, count, here + i * O, O); break;
                    case 3: outer_tile(3, a, i, b, column, count, here + i * O, O); break;
                    case 4: outer_tile(4, a, i, b, column, count, here + i * O, O); break;
                    case 5: outer_tile(5, a, i, b, column, count, here + i * O, O); break;
                    default: outer_tile(6, a, i, b, column, count, here + i * O, O); break;
                }
                i += R;
            }
        }
        free(a);
    }
}
