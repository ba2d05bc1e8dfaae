/* The time loops of a RIM layer, forward and backward: what torch_loops.py does in torch, at a cost that follows activity.
 *
 * Rows of a batch do not know of each other, so each thread takes some rows through all steps, and nobody waits. A RIM
 * that keeps its state costs next to nothing: its dynamics are left out, its query and what others hear of it are kept
 * until it moves again, and what the backward wants of it is not written down. So most tensors have a place only for
 * those who move at a step: RIM k's is `slot_of`.
 *
 * c_loops.py compiles this with -Dreal=float or -Dreal=double, and makes room for all tensors. Letters for sizes are those
 * of torch_loops.py: T steps, B batch, K RIMs, H units per RIM, N elements, n input heads of key size d and value size w,
 * m communication heads of key size e and value size v; and S is the number of places. */

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
#define MANY_ROWS (VECTOR_BYTES == 64 ? 2 * MAX_ROWS : MAX_ROWS) /* with 32 registers */
#define MAX_PIECE 256
#define AHEAD 8 /* so many rows before it is wanted, one is fetched from memory */
#define PANEL ((long)(PANEL_BYTES / sizeof(real)))
#if defined(__x86_64__) /* for all rows, where compilers would read it from memory for each */
#define IN_REGISTER(x) __asm__("" : "+v"(x))
#else
#define IN_REGISTER(x)
#endif
#define INLINE static inline __attribute__((always_inline))

typedef real vec __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(real)), may_alias));
typedef char bits __attribute__((vector_size(VECTOR_BYTES), aligned(1), may_alias));

typedef struct { /* a tensor: row b of RIM k at step t begins at `at + t * .t + k * .k + b * .b` */
    real *at;
    long t, k, b;
} rows;

typedef struct { /* weights of all RIMs, in panels: columns that lie side by side, as many as a step of `tile` reads */
    real *at;
    long rim, panel, row; /* how far it is to the next; no panel: rows for `dots` */
} weights;

typedef struct {
    long T, B, K, H, N, n, d, w, m, e, v, S, num_active, gru, top_k, saves;
    long keepers; /* how many RIMs keep an element, those that attend to it most; 0: all */
    long would_be; /* what is heard of those who are not active: 1: what they would have become, without a gradient */
    double null_bound; /* of attention on null, beyond which nobody is active */
    rows keep;         /* 0 where the state is set to zero before the step; or absent */
    rows keys, values; /* absent keys: nobody attends, all read */
    rows reads;        /* values times weight_ih of each RIM, if this was done beforehand */
    rows attention;    /* of a set: (n, K, N + 1) for each row of the batch; negative where others keep the element */
    rows null;         /* of one element: attention on null of each RIM */
    rows h_0, c_0, h, c;                      /* the first state, h after each step, and the last c */
    rows active;                              /* 1 or 0; given if nobody competes */
    rows query, read, read_gates;             /* from here on by place: of the active; read_gates: as reads */
    rows gates, from_state, c_in, updated;    /* of those who move; from_state: of a GRU; updated: h before communication */
    rows qkv, p, received;                    /* p: (m, S who listens, K who is heard) for each row of the batch */
    rows message;                             /* of a gated one its two factors, tanh(.) and sigmoid(.) */
    rows kept;                                /* queries, keys and values of those who keep their state, by `kept_at` */
    rows read_mask, message_mask;             /* of dropout, or absent: of what is read, and of what h gains by hearing */
    rows d_out, d_h, d_c, d_gates, d_rec, d_message, d_qkv, d_kept, d_query, d_keys, d_values; /* d_rec: of from_state */
    weights bias, bias_hh, input_query, weight_ih, weight_hh, comm_qkv, comm_out, comm_gate;
    real *zeros;                              /* as many as a state or a row of qkv has */
    real *preference;                         /* of each RIM, taken from its attention on null where they compete; or absent */
    int *own;                                 /* the one element that a RIM may look at; or absent */
    int *asleep;                              /* what each RIM does while it is not active, see below */
    int *slots, *kept_at;                     /* (T, B, K): places; rows of kept, of which each row of the batch has its own */
} layer;

/* What RIMs do that are not active: keep their state, go on by themselves, or hear the others besides. */
enum { KEEP, DRIFT, LISTEN };

INLINE real *row(const rows *s, long t, long k, long b) { return s->at + t * s->t + k * s->k + b * s->b; }

INLINE int is_active(const layer *l, long t, long k, long b) { return *row(&l->active, t, k, b) != 0; }

INLINE int moves(const layer *l, long t, long k, long b) { return l->asleep[k] != KEEP || is_active(l, t, k, b); }

INLINE int hears(const layer *l, long t, long k, long b) { return l->asleep[k] == LISTEN || is_active(l, t, k, b); }

INLINE int is_reset(const layer *l, long t, long b) { return l->keep.at && *row(&l->keep, t, 0, b) == 0; }

/* Whether its dynamics are computed, though it may keep its state; and whether it reads for them. */
INLINE int is_computed(const layer *l, long t, long k, long b) { return l->would_be || moves(l, t, k, b); }

INLINE int reads(const layer *l, long t, long k, long b) { return l->would_be || is_active(l, t, k, b); }

/* Whether h, going into the step, differs from what went into the one before. */
INLINE int is_new(const layer *l, long t, long k, long b) { return !t || is_reset(l, t, b) || moves(l, t - 1, k, b); }

/* h going into a step; nothing after a reset, when it is zero. */
INLINE real *h_in(const layer *l, long t, long k, long b) {
    return is_reset(l, t, b) ? NULL : t ? row(&l->h, t - 1, k, b) : row(&l->h_0, 0, k, b);
}

/* Of what is not saved there is only one step. */
INLINE int *of_step(const layer *l, int *indices, long t, long k, long b) {
    return indices + ((l->saves ? t * l->B : 0) + b) * l->K + k;
}

INLINE int slot_of(const layer *l, long t, long k, long b) { return *of_step(l, l->slots, t, k, b); }

INLINE real *place(const layer *l, const rows *s, long t, long k, long b) { return row(s, t, slot_of(l, t, k, b), b); }

/* Which row of `rows` holds what others hear of a RIM that keeps its state; nothing if that is zero. */
INLINE real *kept_row(const layer *l, const rows *s, long t, long k, long b) {
    const int at = *of_step(l, l->kept_at, t, k, b);
    return at < 0 ? NULL : row(s, 0, at, b);
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

/* What becomes of a product: it is written, or added, or added times the factor of its row. */
enum { SET, ADD, ADD_TIMES };

/* R rows and C vectors of columns of the product below; R, C and `how` are constants where this is inlined. */
INLINE void tile(const int how, const int R, const int C, real *const *a, const real *factors, long inner,
                 const weights *b, long k, real *const *out, long column, long columns) {
    const real *panel = b->at + k * b->rim + column / PANEL * b->panel + column % PANEL;
    const long next = b->panel, down = b->row;
    vec sum[MAX_ROWS][4];
    for (int r = 0; r < R; r++)
        for (int j = 0; j < C; j++)
            sum[r][j] = how == ADD ? load(out[r] + column + j * LANES, columns - column - j * LANES) : (vec){0};
    for (long i = 0; i < inner; i++) {
        vec with[4];
        for (int j = 0; j < C; j++) {
            with[j] = *(const vec *)(panel + j * LANES / PANEL * next + j * LANES % PANEL + i * down);
            IN_REGISTER(with[j]);
        }
        for (int r = 0; r < R; r++)
            for (int j = 0; j < C; j++) sum[r][j] += a[r][i] * with[j];
    }
    for (int r = 0; r < R; r++)
        for (int j = 0; j < C; j++) {
            real *to = out[r] + column + j * LANES;
            const long left = columns - column - j * LANES;
            if (how == ADD_TIMES) sum[r][j] = load(to, left) + factors[r] * sum[r][j];
            store(to, sum[r][j], left);
        }
}

INLINE void tiles(const int how, const int R, const int C, real *const *a, const real *factors, long inner,
                  const weights *b, long k, real *const *out, long columns) {
    long column = 0;
    for (; column + (C - 1) * LANES < columns; column += C * LANES)
        tile(how, R, C, a, factors, inner, b, k, out, column, columns);
    for (; column < columns; column += LANES) tile(how, R, 1, a, factors, inner, b, k, out, column, columns);
}

/* out[r] = a[r] . b of RIM k, or what `how` says, for all rows r. */
INLINE void product(const int how, long k, long count, real *const *a, const real *factors, long inner, const weights *b,
                    real *const *out, long columns) {
    while (count > 0) {
        const long blocks = (count + MAX_ROWS - 1) / MAX_ROWS, R = (count + blocks - 1) / blocks;
        switch (R) {
            case 1: tiles(how, 1, 4, a, factors, inner, b, k, out, columns); break;
            case 2: tiles(how, 2, 4, a, factors, inner, b, k, out, columns); break;
            case 3: tiles(how, 3, 2, a, factors, inner, b, k, out, columns); break;
            case 4: tiles(how, 4, 2, a, factors, inner, b, k, out, columns); break;
            case 5: tiles(how, 5, 2, a, factors, inner, b, k, out, columns); break;
            default: tiles(how, 6, 2, a, factors, inner, b, k, out, columns); break;
        }
        a += R, out += R, count -= R;
        if (how == ADD_TIMES) factors += R;
    }
}

static void set_product(long k, long count, real *const *a, long inner, const weights *b, real *const *out,
                        long columns) {
    product(SET, k, count, a, NULL, inner, b, out, columns);
}

static void add_product(long k, long count, real *const *a, long inner, const weights *b, real *const *out,
                        long columns) {
    product(ADD, k, count, a, NULL, inner, b, out, columns);
}

static void add_product_times(long k, long count, real *const *a, const real *factors, long inner, const weights *b,
                              real *const *out, long columns) {
    product(ADD_TIMES, k, count, a, factors, inner, b, out, columns);
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

/* out[r] = a[r] . b of RIM k, whose rows hold the weights of one number of `out` each, in whole vectors: for few rows. */
INLINE void dots(const int R, long k, real *const *a, long inner, const weights *b, real *const *out, long columns) {
    for (long column = 0; column < columns; column += 4) {
        const real *from = b->at + k * b->rim + column * b->row;
        const int C = columns - column < 4 ? columns - column : 4;
        long next[4];
        vec sum[2][4];
        for (int c = 0; c < 4; c++) next[c] = (c < C ? c : 0) * b->row;
        for (int r = 0; r < R; r++)
            for (int c = 0; c < 4; c++) sum[r][c] = (vec){0};
        for (long i = 0; i < inner; i += LANES)
            for (int c = 0; c < 4; c++) {
                const vec with = *(const vec *)(from + next[c] + i);
                for (int r = 0; r < R; r++) sum[r][c] += *(const vec *)(a[r] + i) * with;
            }
        for (int r = 0; r < R; r++)
            for (int c = 0; c < C; c++) out[r][column + c] = total(sum[r][c]);
    }
}

static void dot_product(long k, long count, real *const *a, long inner, const weights *b, real *const *out, long columns) {
    for (; count > 1; a += 2, out += 2, count -= 2) dots(2, k, a, inner, b, out, columns);
    if (count) dots(1, k, a, inner, b, out, columns);
}

/* The last numbers of `size`, those that do not fill a vector, behind zeros. */
INLINE vec rest(const real *from, long size) {
    static const unsigned char none_all[2 * VECTOR_BYTES] = {[VECTOR_BYTES... 2 * VECTOR_BYTES - 1] = 255};
    const long left = size % LANES;
    if (size < LANES) return load(from, left);
    return (vec)(*(const bits *)(from + size - LANES) & *(const bits *)(none_all + left * sizeof(real)));
}

INLINE real dot(const real *a, const real *b, long size) {
    vec sums = {0};
    long i = 0;
    for (; i + LANES <= size; i += LANES) sums += *(const vec *)(a + i) * *(const vec *)(b + i);
    if (i < size) sums += rest(a, size) * rest(b, size);
    return total(sums);
}

/* out[i] = scale * a . of[i], for `count` vectors; nothing is a vector of zeros. Four at a time, so that the sums overlap. */
INLINE void dot_each(const real *a, real *const *of, long offset, long count, long size, real scale, real *out) {
    long i = 0;
    for (; i + 4 <= count; i += 4) {
        vec sum[4] = {{0}, {0}, {0}, {0}};
        const real *with[4];
        for (int c = 0; c < 4; c++) with[c] = of[i + c] ? of[i + c] + offset : a;
        for (long j = 0; j + LANES <= size; j += LANES) {
            const vec x = *(const vec *)(a + j);
            for (int c = 0; c < 4; c++) sum[c] += x * *(const vec *)(with[c] + j);
        }
        if (size % LANES)
            for (int c = 0; c < 4; c++) sum[c] += rest(a, size) * rest(with[c], size);
        for (int c = 0; c < 4; c++) out[i + c] = of[i + c] ? scale * total(sum[c]) : 0;
    }
    for (; i < count; i++) out[i] = of[i] ? scale * dot(a, of[i] + offset, size) : 0;
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

/* Over each of `count` rows of `size`, one behind the other; in passes over all of them, which become vector code. */
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
        const real share = 1 / sum;
        for (long j = 0; j < size; j++) x[i * size + j] *= share;
    }
}

/* out = the sum of `count` rows, each times its weight; weights are `stride` apart. Nothing is a row of zeros. What does not
 * fill a vector is done with numbers before it, once more. */
INLINE void weighted_sum(real *out, const real *weights, long stride, long count, real *const *of, long offset, long size) {
    for (long begin = 0; begin < size; begin += LANES) {
        const long i = begin + LANES > size && size > LANES ? size - LANES : begin;
        vec sum = {0};
        for (long j = 0; j < count; j++)
            if (of[j]) sum += weights[j * stride] * load(of[j] + offset + i, size - i);
        store(out + i, sum, size - i);
    }
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* Who is before RIM k: those with less, of equal ones the first. */
INLINE long rank(const real *of, long count, long k) {
    long before = 0;
    for (long j = 0; j < count; j++) before += of[j] < of[k] || (of[j] == of[k] && j < k);
    return before;
}

/* Of attention as it is kept: what a RIM reads with. */
INLINE real used(real attention) { return attention > 0 ? attention : 0; }

/* Attention of all RIMs over a set; averaged over heads, that on null and, for `by`, by which they compete, the same, or
 * minus what is left to them of the elements. */
static void attend(const layer *l, long t, long b, const rows *query, real *null, real *by) {
    const long K = l->K, N = l->N, n = l->n, d = l->d;
    const real scale = 1 / sqrt((double)d);
    real *attention = row(&l->attention, t, 0, b);
    for (long head = 0; head < n; head++)
        for (long k = 0; k < K; k++) {
            real *logits = attention + (head * K + k) * (N + 1);
            const real *of_rim = row(query, 0, k, b) + head * d, *keys = row(&l->keys, t, 0, b) + head * d;
            for (long i = 0; i < N; i++)
                logits[i] = l->own && i != l->own[k] ? -INFINITY : scale * dot(of_rim, keys + i * n * d, d);
            logits[N] = 0;
        }
    softmax(attention, n * K, N + 1);
    for (long k = 0; k < K && l->own; k++) /* exactly nothing, which the exponential of a float is not */
        for (long head = 0; head < n; head++)
            for (long i = 0; i < N; i++)
                if (i != l->own[k]) attention[(head * K + k) * (N + 1) + i] = 0;
    fill(null, 0, K);
    for (long head = 0; head < n; head++)
        for (long k = 0; k < K; k++) null[k] += attention[(head * K + k) * (N + 1) + N] / n;
    copy(by, null, K);
    if (!l->keepers) return;
    fill(by, 0, K);
    for (long i = 0; i < N; i++) {
        real mean[K];
        fill(mean, 0, K);
        for (long head = 0; head < n; head++)
            for (long k = 0; k < K; k++) mean[k] -= attention[(head * K + k) * (N + 1) + i] / n;
        for (long k = 0; k < K; k++)
            if (rank(mean, K, k) < l->keepers)
                by[k] += mean[k];
            else
                for (long head = 0; head < n; head++) attention[(head * K + k) * (N + 1) + i] *= -1;
    }
}

static void read_set(const layer *l, long t, long k, long b) {
    const long n = l->n, w = l->w;
    real *read = place(l, &l->read, t, k, b);
    fill(read, 0, n * w);
    for (long head = 0; head < n; head++) {
        const real *attention = row(&l->attention, t, 0, b) + (head * l->K + k) * (l->N + 1);
        for (long i = 0; i < l->N; i++)
            add_scaled(read + head * w, used(attention[i]), row(&l->values, t, 0, b) + (i * n + head) * w, w);
    }
    if (l->read_mask.at) multiply(read, row(&l->read_mask, t, k, b), n * w);
}

/* Who is active: those with the least in `by`, of equal ones the first. */
static void compete(const layer *l, long t, long b, const real *null, real *by) {
    for (long k = 0; k < l->K; k++) {
        if (l->preference) by[k] -= l->preference[k];
        if (isnan(by[k])) by[k] = INFINITY; /* so that never more are active than there are places */
    }
    for (long k = 0; k < l->K; k++)
        *row(&l->active, t, k, b) =
            rank(by, l->K, k) < l->num_active && (by[k] == -INFINITY || !(null[k] > (real)l->null_bound));
}

static void lstm_cell(const layer *l, long t, long k, long b) {
    const long H = l->H;
    real *gates = place(l, &l->gates, t, k, b), *updated = place(l, &l->updated, t, k, b), *c = row(&l->c, 0, k, b);
    real *i = gates, *f = gates + H, *g = gates + 2 * H, *o = gates + 3 * H;
    for (long j = 0; j < H; j++) g[j] += g[j];
    for (long j = 0; j < 4 * H; j++) gates[j] = sigmoid(gates[j]);
    for (long j = 0; j < H; j++) g[j] = 2 * g[j] - 1; /* tanh(x) = 2 sigmoid(2 x) - 1 */
    for (long j = 0; j < H; j++) c[j] = f[j] * c[j] + i[j] * g[j];
    for (long j = 0; j < H; j++) updated[j] = o[j] * (2 * sigmoid(2 * c[j]) - 1);
}

static void gru_cell(const layer *l, long t, long k, long b) {
    const long H = l->H;
    const real *state = place(l, &l->from_state, t, k, b), *h = h_in(l, t, k, b);
    real *r = place(l, &l->gates, t, k, b), *z = r + H, *n = r + 2 * H, *updated = place(l, &l->updated, t, k, b);
    if (!h) h = l->zeros;
    for (long j = 0; j < 2 * H; j++) r[j] = sigmoid(r[j] + state[j]);
    for (long j = 0; j < H; j++) n[j] = 2 * sigmoid(2 * (n[j] + r[j] * state[2 * H + j])) - 1;
    for (long j = 0; j < H; j++) updated[j] = n[j] + z[j] * (h[j] - n[j]);
}

/* The state and the gates of RIM k before its products: what it keeps, or biases and what it reads. */
static void begin_step(const layer *l, long t, long k, long b) {
    const long H = l->H, G = (l->gru ? 3 : 4) * H;
    const real *h = h_in(l, t, k, b);
    real *c = row(&l->c, 0, k, b);
    if (!t) copy(c, row(&l->c_0, 0, k, b), H);
    if (!h) fill(c, 0, H);
    if (!moves(l, t, k, b)) copy(row(&l->h, t, k, b), h ? h : l->zeros, H);
    if (!is_computed(l, t, k, b)) return;
    copy(place(l, &l->gates, t, k, b), l->bias.at + k * l->bias.rim, G);
    if (l->gru)
        copy(place(l, &l->from_state, t, k, b), l->bias_hh.at + k * l->bias_hh.rim, G);
    else
        copy(place(l, &l->c_in, t, k, b), c, H);
}

/* How much of the one element a RIM reads. */
INLINE real attention_to_x(const layer *l, long t, long k, long b) {
    return l->null.at ? 1 - *row(&l->null, t, k, b) : 1;
}

/* The one element as a RIM reads it. */
static real *read_one(const layer *l, long t, long k, long b) {
    real *value = row(&l->values, t, 0, b);
    if (!l->read_mask.at) return value;
    real *read = place(l, &l->read, t, k, b);
    copy(read, value, l->n * l->w);
    multiply(read, row(&l->read_mask, t, k, b), l->n * l->w);
    return read;
}

/* What RIM k reads goes into its gates. */
static void read_input(const layer *l, long t, long k, long begin, long end) {
    const long G = (l->gru ? 3 : 4) * l->H, V = l->n * l->w;
    real *a[end - begin], *o[end - begin];
    long count = 0;
    for (long b = begin; b < end; b++) {
        if (!reads(l, t, k, b)) continue;
        if (l->reads.at)
            add_scaled(place(l, &l->gates, t, k, b), attention_to_x(l, t, k, b), row(&l->reads, t, k, b), G);
        else if (l->attention.at)
            read_set(l, t, k, b), a[count] = place(l, &l->read, t, k, b), o[count++] = place(l, &l->gates, t, k, b);
        else
            a[count] = read_one(l, t, k, b), o[count++] = place(l, &l->read_gates, t, k, b);
    }
    if (l->weight_ih.panel)
        (l->attention.at ? add_product : set_product)(k, count, a, V, &l->weight_ih, o, G);
    else
        dot_product(k, count, a, V, &l->weight_ih, o, G);
    for (long b = begin; b < end && l->read_gates.at; b++)
        if (reads(l, t, k, b))
            add_scaled(place(l, &l->gates, t, k, b), attention_to_x(l, t, k, b), place(l, &l->read_gates, t, k, b), G);
}

/* What there is to hear of each RIM: of those who are computed after each step, of others when they have stopped to move. */
static void speak(const layer *l, long t, long k, long begin, long end, int *next) {
    real *a[end - begin], *o[end - begin];
    long count = 0;
    for (long b = begin; b < end; b++) {
        if (is_computed(l, t, k, b)) {
            a[count] = place(l, &l->updated, t, k, b), o[count++] = place(l, &l->qkv, t, k, b);
            continue;
        }
        int *at = of_step(l, l->kept_at, t, k, b);
        if (!is_new(l, t, k, b))
            *at = *of_step(l, l->kept_at, t - 1, k, b);
        else if (!h_in(l, t, k, b))
            *at = -1;
        else {
            *at = l->saves ? next[b - begin]++ : (int)k;
            a[count] = h_in(l, t, k, b), o[count++] = row(&l->kept, 0, *at, b);
        }
    }
    set_product(k, count, a, l->H, &l->comm_qkv, o, l->m * (2 * l->e + l->v));
}

INLINE void who_speaks(const layer *l, long t, long b, real **of) {
    for (long k = 0; k < l->K; k++)
        of[k] = is_computed(l, t, k, b) ? place(l, &l->qkv, t, k, b) : kept_row(l, &l->kept, t, k, b);
}

/* Those with the largest logits keep theirs; of the others nothing is heard. */
static void keep_top(real *logits, long count, long top) {
    real negative[count];
    for (long j = 0; j < count; j++) negative[j] = -logits[j];
    for (long j = 0; j < count; j++)
        if (rank(negative, count, j) >= top) logits[j] = -INFINITY;
}

/* What RIMs hear of all of them. */
static void listen(const layer *l, long t, long b) {
    const long K = l->K, S = l->S, e = l->e, v = l->v, size = 2 * e + v;
    const real scale = 1 / sqrt((double)e);
    real *of[K], *p = row(&l->p, t, 0, b);
    who_speaks(l, t, b, of);
    fill(p, 0, l->m * S * K); /* of places that nobody has */
    for (long head = 0; head < l->m; head++)
        for (long k = 0; k < K; k++) {
            if (!hears(l, t, k, b)) continue;
            real *logits = p + (head * S + slot_of(l, t, k, b)) * K;
            dot_each(of[k] + head * size, of, head * size + e, K, e, scale, logits);
            if (l->top_k) keep_top(logits, K, l->top_k);
        }
    softmax(p, l->m * S, K);
    for (long i = 0; l->top_k && i < l->m * S * K; i++) /* exactly nothing, which the exponential of a float is not */
        if (p[i] < (real)1e-37) p[i] = 0;
    for (long head = 0; head < l->m; head++)
        for (long k = 0; k < K; k++)
            if (hears(l, t, k, b))
                weighted_sum(place(l, &l->received, t, k, b) + head * v, p + (head * S + slot_of(l, t, k, b)) * K, 1, K,
                             of, head * size + 2 * e, v);
}

/* Messages `out` of those who hear, made of what they received, become tanh(out) times a gate. */
static void gate(const layer *l, long t, long k, long begin, long end, real *const *received, real *const *out) {
    const long H = l->H;
    real *o[end - begin];
    long count = 0;
    for (long b = begin; b < end; b++)
        if (hears(l, t, k, b)) o[count++] = place(l, &l->message, t, k, b) + H;
    set_product(k, count, received, l->m * l->v, &l->comm_gate, o, H);
    for (long i = 0; i < count; i++) {
        real *to = out[i], *gates = o[i], *bounded = o[i] - H;
        for (long j = 0; j < H; j++) gates[j] = sigmoid(gates[j]);
        for (long j = 0; j < H; j++) bounded[j] = 2 * sigmoid(2 * to[j]) - 1;
        for (long j = 0; j < H; j++) to[j] = gates[j] * bounded[j];
    }
}

/* Add what RIMs received to their h. */
static void hear(const layer *l, long t, long k, long begin, long end) {
    const long H = l->H, values = l->m * l->v;
    real *a[end - begin], *o[end - begin];
    long count = 0;
    for (long b = begin; b < end; b++)
        if (hears(l, t, k, b)) a[count] = place(l, &l->received, t, k, b), o[count++] = row(&l->h, t, k, b);
    if (!l->message_mask.at && !l->message.at) {
        add_product(k, count, a, values, &l->comm_out, o, H);
        return;
    }
    real *gain = malloc((end - begin) * H * sizeof(real));
    for (long i = 0; i < count; i++) o[i] = gain + i * H;
    set_product(k, count, a, values, &l->comm_out, o, H);
    if (l->message.at) gate(l, t, k, begin, end, a, o);
    count = 0;
    for (long b = begin; b < end; b++)
        if (hears(l, t, k, b)) {
            if (l->message_mask.at) multiply(o[count], row(&l->message_mask, t, k, b), H);
            add_scaled(row(&l->h, t, k, b), 1, o[count++], H);
        }
    free(gain);
}

static void forward_rows(const layer *l, long begin, long end) {
    const long K = l->K, H = l->H, G = (l->gru ? 3 : 4) * H, queries = l->n * l->d;
    const real scale = 1 / sqrt((double)l->d);
    real *a[end - begin], *o[end - begin];
    int next[end - begin]; /* rows of kept that are taken */
    memset(next, 0, sizeof next);
    real *now = malloc((end - begin) * K * queries * sizeof(real)); /* queries of all RIMs */
    const rows query = {now - begin * K * queries, 0, queries, K * queries};

    for (long t = 0; t < l->T; t++) {
        for (long k = 0; k < K && l->keys.at; k++) {
            long count = 0;
            for (long b = begin; b < end; b++) {
                if (!is_new(l, t, k, b)) continue;
                if (h_in(l, t, k, b))
                    a[count] = h_in(l, t, k, b), o[count++] = row(&query, 0, k, b);
                else
                    fill(row(&query, 0, k, b), 0, queries);
            }
            set_product(k, count, a, H, &l->input_query, o, queries);
        }
        for (long b = begin; b < end; b++) {
            real null[K], by[K];
            if (l->attention.at) attend(l, t, b, &query, null, by);
            for (long k = 0; k < K && l->null.at; k++) /* minus the logit of x is the log-odds of null */
                by[k] = null[k] = *row(&l->null, t, k, b) =
                    sigmoid(-scale * dot(row(&query, 0, k, b), row(&l->keys, t, 0, b), queries));
            if (l->num_active) compete(l, t, b, null, by);
            int slot = 0;
            for (long k = 0; k < K; k++) *of_step(l, l->slots, t, k, b) = is_computed(l, t, k, b) ? slot++ : -1;
            for (long k = 0; k < K && l->query.at; k++)
                if (reads(l, t, k, b)) copy(place(l, &l->query, t, k, b), row(&query, 0, k, b), queries);
        }

        for (long k = 0; k < K; k++) {
            for (long b = begin; b < end; b++) begin_step(l, t, k, b);
            read_input(l, t, k, begin, end);
            long count = 0;
            for (long b = begin; b < end; b++)
                if (is_computed(l, t, k, b) && h_in(l, t, k, b))
                    a[count] = h_in(l, t, k, b), o[count++] = place(l, l->gru ? &l->from_state : &l->gates, t, k, b);
            add_product(k, count, a, H, &l->weight_hh, o, G);
            for (long b = begin; b < end; b++) {
                if (!is_computed(l, t, k, b)) continue;
                (l->gru ? gru_cell : lstm_cell)(l, t, k, b);
                if (moves(l, t, k, b))
                    copy(row(&l->h, t, k, b), place(l, &l->updated, t, k, b), H);
                else if (!l->gru)
                    copy(row(&l->c, 0, k, b), place(l, &l->c_in, t, k, b), H);
            }
            if (l->qkv.at) speak(l, t, k, begin, end, next);
        }
        if (!l->qkv.at) continue;
        for (long b = begin; b < end; b++) listen(l, t, b);
        for (long k = 0; k < K; k++) hear(l, t, k, begin, end);
    }
    free(now);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* out = the sum, over steps and over those who listen, of rows `of` times their weights. Who has none may have no row. */
INLINE void sum_of_steps(const layer *l, real *out, const rows *weights, long at, const rows *of, long offset, long size,
                         long begin, long end, long b) {
    for (long first = 0; first < size; first += LANES) {
        const long i = first + LANES > size && size > LANES ? size - LANES : first;
        vec sum = {0};
        for (long t = begin; t < end; t++)
            for (long s = 0; s < l->S; s++) {
                const real weight = row(weights, t, 0, b)[at + s * l->K];
                if (weight != 0) sum += weight * load(row(of, t, s, b) + offset + i, size - i);
            }
        store(out + i, sum, size - i);
    }
}

/* From the gradient of what RIMs received to that of queries, keys and values. For those who keep their state it is done
 * at the step when they stop to move, for all steps at which the same was heard of them. */
static void listen_backward(const layer *l, long t, long b, const rows *d_received, const rows *d_logits) {
    const long K = l->K, S = l->S, e = l->e, v = l->v, size = 2 * e + v;
    const real scale = 1 / sqrt((double)e);
    real *of[K], *who[S], *d_of[S], *all = row(d_logits, t, 0, b);
    who_speaks(l, t, b, of);
    for (long s = 0; s < S; s++) who[s] = NULL, d_of[s] = row(d_received, t, s, b);
    for (long k = 0; k < K; k++)
        if (hears(l, t, k, b)) who[slot_of(l, t, k, b)] = of[k];
    for (long head = 0; head < l->m; head++)
        for (long s = 0; s < S; s++) {
            const real *p = row(&l->p, t, 0, b) + (head * S + s) * K;
            real *to = all + (head * S + s) * K, sum = 0;
            if (!who[s]) {
                fill(to, 0, K);
                continue;
            }
            dot_each(d_of[s] + head * v, of, head * size + 2 * e, K, v, 1, to);
            for (long j = 0; j < K; j++) sum += to[j] *= p[j];
            for (long j = 0; j < K; j++) to[j] = scale * (to[j] - p[j] * sum);
        }
    for (long k = 0; k < K; k++) {
        const int computed = is_computed(l, t, k, b);
        if (!of[k] || (!computed && !is_new(l, t, k, b))) continue;
        long end = t + 1;
        while (!computed && end < l->T && !moves(l, end, k, b) && !is_reset(l, end, b)) end++;
        real *to = computed ? place(l, &l->d_qkv, t, k, b) : kept_row(l, &l->d_kept, t, k, b);
        for (long head = 0; head < l->m; head++, to += size) {
            const long at = head * S * K;
            if (hears(l, t, k, b))
                weighted_sum(to, all + at + slot_of(l, t, k, b) * K, 1, K, of, head * size + e, e);
            else
                fill(to, 0, e);
            if (computed) {
                weighted_sum(to + e, all + at + k, K, S, who, head * size, e);
                weighted_sum(to + 2 * e, row(&l->p, t, 0, b) + at + k, K, S, d_of, head * v, v);
            } else {
                sum_of_steps(l, to + e, d_logits, at + k, &l->qkv, head * size, e, t, end, b);
                sum_of_steps(l, to + 2 * e, &l->p, at + k, d_received, head * v, v, t, end, b);
            }
        }
    }
}

/* Into d_gates, from the gradients of h and c after the cell; d_h and d_c become what passes the gates by. */
static void lstm_backward(const layer *l, long t, long k, long b) {
    const long H = l->H;
    const real *gates = place(l, &l->gates, t, k, b), *c_in = place(l, &l->c_in, t, k, b);
    real *d_gates = place(l, &l->d_gates, t, k, b), *d_h = row(&l->d_h, t, k, b), *d_c = row(&l->d_c, t, k, b);
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

/* The same of a GRU, whose gate n multiplies what comes from the state by r: so d_rec differs from d_gates there. */
static void gru_backward(const layer *l, long t, long k, long b) {
    const long H = l->H;
    const real *r = place(l, &l->gates, t, k, b), *z = r + H, *n = r + 2 * H, *h = h_in(l, t, k, b);
    const real *state_n = place(l, &l->from_state, t, k, b) + 2 * H;
    real *d_gates = place(l, &l->d_gates, t, k, b), *d_rec = place(l, &l->d_rec, t, k, b), *d_h = row(&l->d_h, t, k, b);
    if (!h) h = l->zeros;
    for (long j = 0; j < H; j++) {
        const real d_n = d_h[j] * (1 - z[j]) * (1 - n[j] * n[j]);
        d_rec[j] = d_gates[j] = d_n * state_n[j] * r[j] * (1 - r[j]);
        d_rec[H + j] = d_gates[H + j] = d_h[j] * (h[j] - n[j]) * z[j] * (1 - z[j]);
        d_gates[2 * H + j] = d_n;
        d_rec[2 * H + j] = d_n * r[j];
        d_h[j] *= z[j];
    }
}

/* From the gradient of what a RIM read of a set, `d_read` (n * w), to those of its query, of keys and of values. */
static void read_backward(const layer *l, long t, long k, long b, const real *d_read) {
    const long N = l->N, n = l->n, d = l->d, w = l->w;
    const real scale = 1 / sqrt((double)d), *query = place(l, &l->query, t, k, b);
    real *d_query = place(l, &l->d_query, t, k, b), d_logits[N];
    fill(d_query, 0, n * d);
    for (long head = 0; head < n; head++) {
        const real *attention = row(&l->attention, t, 0, b) + (head * l->K + k) * (N + 1);
        real sum = 0;
        for (long i = 0; i < N; i++) {
            const long at = (i * n + head) * w;
            d_logits[i] = used(attention[i]) * dot(d_read + head * w, row(&l->values, t, 0, b) + at, w);
            sum += d_logits[i];
            add_scaled(row(&l->d_values, t, 0, b) + at, used(attention[i]), d_read + head * w, w);
        }
        for (long i = 0; i < N; i++) {
            const real d_logit = scale * (d_logits[i] - (real)fabs((double)attention[i]) * sum);
            const long at = (i * n + head) * d;
            add_scaled(d_query + head * d, d_logit, row(&l->keys, t, 0, b) + at, d);
            add_scaled(row(&l->d_keys, t, 0, b) + at, d_logit, query + head * d, d);
        }
    }
}

/* The same of one element with one head, whose value's gradient is left to `value_gradient`. */
static void read_one_backward(const layer *l, long t, long k, long b) {
    const long G = (l->gru ? 3 : 4) * l->H, d = l->d;
    const real null = *row(&l->null, t, k, b); /* the attention to x is 1 - null */
    const real *reads = l->reads.at ? row(&l->reads, t, k, b) : place(l, &l->read_gates, t, k, b);
    const real d_logit = null * (1 - null) / sqrt((double)d) * dot(place(l, &l->d_gates, t, k, b), reads, G);
    real *d_query = place(l, &l->d_query, t, k, b);
    fill(d_query, 0, d);
    add_scaled(d_query, d_logit, row(&l->keys, t, 0, b), d);
    add_scaled(row(&l->d_keys, t, 0, b), d_logit, place(l, &l->query, t, k, b), d);
}

/* Of a gated message to its two factors, `d` (2 * H). */
static void gate_backward(const real *message, real *d, long H) {
    for (long j = 0; j < H; j++) {
        const real bounded = message[j], gate = message[H + j];
        d[H + j] = d[j] * bounded * gate * (1 - gate);
        d[j] *= gate * (1 - bounded * bounded);
    }
}

/* From what h became by hearing to what it was before. Nothing passes to what a RIM would have become. */
static void hear_backward(const layer *l, long t, long begin, long end, const rows *d_received, const rows *d_logits) {
    const long K = l->K, H = l->H, size = l->m * (2 * l->e + l->v), values = l->m * l->v;
    real *a[end - begin], *o[end - begin];
    for (long b = begin; b < end; b++) fill(row(d_received, t, 0, b), 0, l->S * values); /* of those who do not hear */
    for (long k = 0; k < K; k++) {
        long count = 0;
        for (long b = begin; b < end; b++) {
            if (!hears(l, t, k, b)) continue;
            real *d_message = a[count] = place(l, &l->d_message, t, k, b);
            copy(d_message, row(&l->d_h, t, k, b), H);
            if (l->message_mask.at) multiply(d_message, row(&l->message_mask, t, k, b), H);
            if (l->message.at) gate_backward(place(l, &l->message, t, k, b), d_message, H);
            o[count++] = place(l, d_received, t, k, b);
        }
        set_product(k, count, a, H, &l->comm_out, o, values);
        if (!l->message.at) continue;
        for (long i = 0; i < count; i++) a[i] += H;
        add_product(k, count, a, H, &l->comm_gate, o, values);
    }
    for (long b = begin; b < end; b++) listen_backward(l, t, b, d_received, d_logits);
    for (long k = 0; k < K; k++) {
        long count = 0;
        for (long b = begin; b < end; b++) {
            real *d = moves(l, t, k, b)                    ? place(l, &l->d_qkv, t, k, b)
                      : !l->would_be && is_new(l, t, k, b) ? kept_row(l, &l->d_kept, t, k, b)
                                           : NULL;
            if (d) a[count] = d, o[count++] = row(&l->d_h, t, k, b);
        }
        add_product(k, count, a, size, &l->comm_qkv, o, H);
    }
}

static void backward_rows(const layer *l, long begin, long end) {
    const long K = l->K, H = l->H, S = l->S, G = (l->gru ? 3 : 4) * H, V = l->n * l->w, queries = l->n * l->d;
    const long count_b = end - begin, values = S * l->m * l->v, logits = l->m * S * K;
    real *scratch = malloc((count_b * S * V + (l->qkv.at ? l->T * count_b * (values + logits) : 0)) * sizeof(real));
    const rows d_read = {scratch - begin * S * V, 0, V, S * V};
    real *of_steps = scratch + count_b * S * V;
    const rows d_received = {of_steps - begin * values, count_b * values, l->m * l->v, values};
    const rows d_logits = {of_steps + l->T * count_b * values - begin * logits, count_b * logits, 0, logits};
    real *a[count_b], *o[count_b];

    for (long t = l->T - 1; t >= 0; t--) {
        for (long k = 0; k < K; k++)
            for (long b = begin; b < end; b++) add_scaled(row(&l->d_h, t, k, b), 1, row(&l->d_out, t, k, b), H);
        if (l->qkv.at) hear_backward(l, t, begin, end, &d_received, &d_logits);

        for (long b = begin; b < end && l->keys.at; b++) fill(row(&l->d_keys, t, 0, b), 0, l->N * queries);
        for (long b = begin; b < end && l->attention.at; b++) fill(row(&l->d_values, t, 0, b), 0, l->N * V);
        for (long k = 0; k < K; k++) {
            long count = 0;
            for (long b = begin; b < end; b++) {
                if (!moves(l, t, k, b)) continue;
                (l->gru ? gru_backward : lstm_backward)(l, t, k, b);
                a[count] = place(l, &l->d_rec, t, k, b), o[count++] = row(&l->d_h, t, k, b);
            }
            add_product(k, count, a, G, &l->weight_hh, o, H);
            if (!l->keys.at) continue;
            if (l->attention.at) {
                count = 0;
                for (long b = begin; b < end; b++)
                    if (is_active(l, t, k, b)) a[count] = place(l, &l->d_gates, t, k, b), o[count++] = place(l, &d_read, t, k, b);
                set_product(k, count, a, G, &l->weight_ih, o, V);
            }
            count = 0;
            for (long b = begin; b < end; b++) {
                if (!is_active(l, t, k, b)) continue;
                if (l->attention.at) {
                    if (l->read_mask.at) multiply(place(l, &d_read, t, k, b), row(&l->read_mask, t, k, b), V);
                    read_backward(l, t, k, b, place(l, &d_read, t, k, b));
                } else
                    read_one_backward(l, t, k, b);
                a[count] = place(l, &l->d_query, t, k, b), o[count++] = row(&l->d_h, t, k, b);
            }
            add_product(k, count, a, queries, &l->input_query, o, H);
        }

        for (long b = begin; b < end; b++)
            for (long k = 0; k < K && is_reset(l, t, b); k++) {
                fill(row(&l->d_h, t, k, b), 0, H);
                fill(row(&l->d_c, t, k, b), 0, H);
            }
    }
    free(scratch);
}

/* ---- what c_loops.py calls --------------------------------------------------------------------------------------- */

#define SQUARE 16

/* Columns of (R, C) from `begin` on, as many as a panel has, or rows if it is turned, become a panel: one behind the other
 * lie the numbers that a step of the loop in `tile` reads. */
static void make_panel(const real *from, long R, long C, int turned, long begin, real *to) {
    const long left = (turned ? R : C) - begin, wide = left < PANEL ? left : PANEL;
    if (!turned) {
        for (long r = 0; r < R; r++) copy(to + r * PANEL, from + r * C + begin, wide);
        return;
    }
    for (long c = 0; c < C; c += SQUARE) { /* in squares, which stay in the cache */
        const long high = C - c < SQUARE ? C - c : SQUARE;
        for (long r = 0; r < wide; r++)
            for (long i = 0; i < high; i++) to[(c + i) * PANEL + r] = from[(begin + r) * C + c + i];
    }
}

/* Weights (count, R, C), or (count, C, R) if they are turned, in panels of columns, the last one padded. */
void pack(const real *from, long count, long R, long C, int turned, long threads, real *to) {
    const long inner = turned ? C : R, panels = ((turned ? R : C) + PANEL - 1) / PANEL;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long i = 0; i < count * panels; i++)
        make_panel(from + i / panels * R * C, R, C, turned, i % panels * PANEL, to + i * PANEL * inner);
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

/* Whose gradient: of input_query, weight_ih, weight_hh, comm_qkv, comm_out and comm_gate. */
enum { OF_QUERY, OF_IH, OF_HH, OF_QKV, OF_OUT, OF_GATE };

/* The gradient of a weight is a sum of outer products: of which rows of RIM k, `x` and `d`, times which factors. */
static long collect(const layer *l, int weight, long k, const real **x, const real **d, real *factors) {
    long count = 0;
    for (long t = 0; t < l->T; t++)
        for (long b = 0; b < l->B; b++) {
            const real *first = NULL, *second = NULL;
            const int active = is_active(l, t, k, b), moving = moves(l, t, k, b), computed = is_computed(l, t, k, b);
            if (weight == OF_QUERY && active) first = h_in(l, t, k, b), second = place(l, &l->d_query, t, k, b);
            if (weight == OF_IH && active) {
                first = place(l, &l->d_gates, t, k, b);
                second = l->read.at ? place(l, &l->read, t, k, b) : row(&l->values, t, 0, b);
            }
            if (weight == OF_HH && moving) first = h_in(l, t, k, b), second = place(l, &l->d_rec, t, k, b);
            if (weight == OF_QKV && computed) first = place(l, &l->updated, t, k, b), second = place(l, &l->d_qkv, t, k, b);
            if (weight == OF_QKV && !computed && is_new(l, t, k, b))
                first = h_in(l, t, k, b), second = kept_row(l, &l->d_kept, t, k, b);
            if ((weight == OF_OUT || weight == OF_GATE) && hears(l, t, k, b)) {
                first = place(l, &l->d_message, t, k, b) + (weight == OF_GATE ? l->H : 0);
                second = place(l, &l->received, t, k, b);
            }
            if (!first || !second) continue;
            factors[count] = weight == OF_IH ? attention_to_x(l, t, k, b) : 1;
            x[count] = first, d[count++] = second;
        }
    return count;
}

/* Add to (I, O), or turned to (O, I), a block of it at i, column: a (count, MANY_ROWS) times b (count, two vectors). */
static void outer_block(long count, const real *a, const real *b, long i, long column, long I, long O, int turned,
                        real *out) {
    const long high = I - i < MANY_ROWS ? I - i : MANY_ROWS, wide = O - column < 2 * LANES ? O - column : 2 * LANES;
    vec sum[MANY_ROWS][2];
    for (int r = 0; r < MANY_ROWS; r++) sum[r][0] = sum[r][1] = (vec){0};
    for (long j = 0; j < count; j++) {
        const vec one = *(const vec *)(b + j * 2 * LANES), two = *(const vec *)(b + j * 2 * LANES + LANES);
        for (int r = 0; r < MANY_ROWS; r++) {
            const real factor = a[j * MANY_ROWS + r];
            sum[r][0] += factor * one, sum[r][1] += factor * two;
        }
    }
    real sums[MANY_ROWS][2 * LANES];
    memcpy(sums, sum, sizeof sums);
    if (turned)
        for (long c = 0; c < wide; c++)
            for (long r = 0; r < high; r++) out[(column + c) * I + i + r] += sums[r][c];
    else
        for (long r = 0; r < high; r++) add_scaled(out + (i + r) * O + column, 1, sums[r], wide);
}

/* (K, I, O), or turned (K, O, I): sums of outer products of the rows that `collect` finds, to which they are added unless
 * it is `fresh`. */
void weight_gradient(const layer *l, long threads, int weight, long I, long O, int turned, int fresh, real *out) {
    const long most = l->T * l->B, rows = (I + MANY_ROWS - 1) / MANY_ROWS * MANY_ROWS;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (long k = 0; k < l->K; k++) {
        const real **x = malloc(2 * most * sizeof(real *)), **d = x + most;
        real *factors = malloc(most * sizeof(real)), *here = out + k * I * O;
        real *a = aligned_alloc(64, MAX_PIECE * rows * sizeof(real)), *b = aligned_alloc(64, MAX_PIECE * 2 * VECTOR_BYTES);
        const long all = collect(l, weight, k, x, d, factors);
        if (fresh) fill(here, 0, I * O);
        for (long begin = 0; begin < all; begin += MAX_PIECE) { /* what is multiplied comes to lie side by side */
            const long count = all - begin < MAX_PIECE ? all - begin : MAX_PIECE;
            for (long i = 0; i < I; i += MANY_ROWS)
                for (long j = 0; j < count; j++) {
                    real *to = a + i * count + j * MANY_ROWS;
                    if (i + MANY_ROWS <= I)
                        copy(to, x[begin + j] + i, MANY_ROWS);
                    else
                        fill(to, 0, MANY_ROWS), copy(to, x[begin + j] + i, I - i);
                }
            for (long column = 0; column < O; column += 2 * LANES) {
                const long wide = O - column < 2 * LANES ? O - column : 2 * LANES;
                for (long j = 0; j < count; j++) {
                    const real *from = d[begin + j] + column;
                    if (begin + j + AHEAD < all) __builtin_prefetch(d[begin + j + AHEAD] + column);
                    vec *to = (vec *)(b + j * 2 * LANES);
                    to[0] = factors[begin + j] * load(from, wide), to[1] = (vec){0};
                    if (wide > LANES) to[1] = factors[begin + j] * load(from + LANES, wide - LANES);
                }
                for (long i = 0; i < I; i += MANY_ROWS) outer_block(count, a + i * count, b, i, column, I, O, turned, here);
            }
        }
        free(b);
        free(a);
        free(factors);
        free(x);
    }
}

/* Of one element: d_values, from the gates of those who read it. */
void value_gradient(const layer *l, long threads) {
    const long G = (l->gru ? 3 : 4) * l->H, V = l->n * l->w, all = l->T * l->B;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (long begin = 0; begin < all; begin += MAX_PIECE) {
        const long end = begin + MAX_PIECE < all ? begin + MAX_PIECE : all;
        real *a[MAX_PIECE], *o[MAX_PIECE], factors[MAX_PIECE];
        real *scratch = l->read_mask.at ? malloc((end - begin) * V * sizeof(real)) : NULL;
        for (long i = begin; i < end; i++) fill(row(&l->d_values, i / l->B, 0, i % l->B), 0, V);
        for (long k = 0; k < l->K; k++) {
            long count = 0;
            for (long i = begin; i < end; i++) {
                const long t = i / l->B, b = i % l->B;
                if (!is_active(l, t, k, b)) continue;
                a[count] = place(l, &l->d_gates, t, k, b), factors[count] = attention_to_x(l, t, k, b);
                o[count] = scratch ? scratch + count * V : row(&l->d_values, t, 0, b);
                count++;
            }
            if (!scratch) {
                add_product_times(k, count, a, factors, G, &l->weight_ih, o, V);
                continue;
            }
            set_product(k, count, a, G, &l->weight_ih, o, V);
            count = 0;
            for (long i = begin; i < end; i++) {
                const long t = i / l->B, b = i % l->B;
                if (!is_active(l, t, k, b)) continue;
                multiply(o[count], row(&l->read_mask, t, k, b), V);
                add_scaled(row(&l->d_values, t, 0, b), factors[count], o[count], V);
                count++;
            }
        }
        free(scratch);
    }
}

/* Add to (K, G) the gradient of what a bias was added to, `d`, over all steps and rows. */
void bias_gradient(const layer *l, long threads, const rows *d, real *out) {
    const long G = (l->gru ? 3 : 4) * l->H;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (long k = 0; k < l->K; k++)
        for (long t = 0; t < l->T; t++)
            for (long b = 0; b < l->B; b++)
                if (moves(l, t, k, b)) add_scaled(out + k * G, 1, place(l, d, t, k, b), G);
}
