# mypy: allow-untyped-defs, allow-incomplete-defs
"""The two passes of ``attention``, as Triton runs them.

A batch begins at ``row`` of the stream, in backward at ``part`` of the sums too.
"""

try:
    import triton
    import triton.language as tl
except ImportError:  # without CUDA
    triton = None

if triton is not None:

    @triton.jit
    def forward_kernel(
        qkv, out, log_sums, row, n, SCALE_2: tl.constexpr,
        HEADS: tl.constexpr, D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
    ):  # fmt: skip
        """A block of one head's queries against all keys; exponents and logarithms of base 2."""
        blocks = tl.cdiv(n, QUERIES)
        block, pair = tl.program_id(0) % blocks, tl.program_id(0) // blocks
        picture, head = (pair // HEADS).to(tl.int64), pair % HEADS
        dim: tl.constexpr = HEADS * D
        start_row = row + picture * n
        base = qkv + start_row * 3 * dim + head * D
        feature = tl.arange(0, D)[None, :]
        query = block * QUERIES + tl.arange(0, QUERIES)
        q = tl.load(base + query[:, None] * 3 * dim + feature, mask=query[:, None] < n, other=0.0)
        top = tl.full((QUERIES,), -float("inf"), tl.float32)
        total = tl.zeros((QUERIES,), tl.float32)
        value = tl.zeros((QUERIES, D), tl.float32)
        for start in range(0, n, KEYS):
            key = start + tl.arange(0, KEYS)
            at = base + key[:, None] * 3 * dim + feature
            k = tl.load(at + dim, mask=key[:, None] < n, other=0.0)
            v = tl.load(at + 2 * dim, mask=key[:, None] < n, other=0.0)
            s = tl.where(key[None, :] < n, tl.dot(q, tl.trans(k)) * SCALE_2, -float("inf"))
            new_top = tl.maximum(top, tl.max(s, 1))
            p = tl.exp2(s - new_top[:, None])
            shrink = tl.exp2(top - new_top)
            total = total * shrink + tl.sum(p, 1)
            value = value * shrink[:, None] + tl.dot(p.to(v.dtype), v)
            top = new_top
        at = start_row * dim + query[:, None] * dim + head * D + feature
        value = (value / total[:, None]).to(out.dtype.element_ty)
        tl.store(out + at, value, mask=query[:, None] < n)
        at = log_sums + start_row * HEADS + head * n + query
        tl.store(at, top + tl.log2(total), mask=query < n)

    @triton.jit
    def _tokens(base, at, n, ROW: tl.constexpr, D: tl.constexpr):
        """Rows ``at`` of a matrix with D columns; rows beyond n are 0, and so add nothing."""
        place = base + at[:, None] * ROW + tl.arange(0, D)[None, :]
        return tl.load(place, mask=at[:, None] < n, other=0.0)

    @triton.jit
    def backward_kernel(
        qkv, out, grad, log_sums, grad_qkv, sums_qkv, row, part, n,
        SCALE: tl.constexpr, SCALE_2: tl.constexpr, HEADS: tl.constexpr, D: tl.constexpr,
        OUTER: tl.constexpr, INNER: tl.constexpr, WHOLE: tl.constexpr,
    ):  # fmt: skip
        """A block of one head's keys and values against all queries, then of its queries.

        With all keys in one block (``WHOLE``) the first pass has the queries' gradients too.
        """
        blocks = tl.cdiv(n, OUTER)
        block, pair = tl.program_id(0) % blocks, tl.program_id(0) // blocks
        picture, head = (pair // HEADS).to(tl.int64), pair % HEADS
        dim: tl.constexpr = HEADS * D
        start_row = row + picture * n
        q_base = qkv + start_row * 3 * dim + head * D
        out_base = out + start_row * dim + head * D
        g_base = grad + start_row * dim + head * D
        sums_base = log_sums + start_row * HEADS + head * n
        stored = grad_qkv + start_row * 3 * dim + head * D
        feature = tl.arange(0, D)
        summed = sums_qkv + (part + picture * blocks + block) * 3 * dim + head * D + feature

        outer = block * OUTER + tl.arange(0, OUTER)
        # Rows beyond n are read as 0. Their gradients need not be 0, and are left out.
        real = outer[:, None] < n
        k = _tokens(q_base + dim, outer, n, 3 * dim, D)
        v = _tokens(q_base + 2 * dim, outer, n, 3 * dim, D)
        grad_k = tl.zeros((OUTER, D), tl.float32)
        grad_v = tl.zeros((OUTER, D), tl.float32)
        sum_q = tl.zeros((D,), tl.float32)
        for start in range(0, n, INNER):
            inner = start + tl.arange(0, INNER)
            q = _tokens(q_base, inner, n, 3 * dim, D)
            g = _tokens(g_base, inner, n, dim, D)
            o = _tokens(out_base, inner, n, dim, D)
            log_sum = tl.load(sums_base + inner, mask=inner < n, other=0.0)
            delta = tl.sum(o.to(tl.float32) * g.to(tl.float32), 1)
            p_t = tl.exp2(tl.dot(k, tl.trans(q)) * SCALE_2 - log_sum[None, :])
            # Keys beyond n score 0, which may be far above all others: 2 to that is infinite.
            p_t = tl.where(real, p_t, 0.0)
            grad_v += tl.dot(p_t.to(g.dtype), g)
            grad_s_t = (p_t * (tl.dot(v, tl.trans(g)) - delta[None, :])).to(q.dtype)
            grad_k += tl.dot(grad_s_t, q)
            if WHOLE:
                block_q = tl.dot(tl.trans(grad_s_t), k) * SCALE
                at = stored + inner[:, None] * 3 * dim + feature[None, :]
                tl.store(at, block_q.to(q.dtype), mask=inner[:, None] < n)
                sum_q += tl.sum(block_q, 0)  # queries beyond n have none: their g and delta are 0
        grad_k *= SCALE
        stored += outer[:, None] * 3 * dim + feature[None, :]
        tl.store(stored + dim, grad_k.to(k.dtype), mask=real)
        tl.store(stored + 2 * dim, grad_v.to(k.dtype), mask=real)
        tl.store(summed + dim, tl.sum(tl.where(real, grad_k, 0.0), 0))
        tl.store(summed + 2 * dim, tl.sum(tl.where(real, grad_v, 0.0), 0))

        if not WHOLE:
            query = _tokens(q_base, outer, n, 3 * dim, D)
            query_g = _tokens(g_base, outer, n, dim, D)
            query_o = _tokens(out_base, outer, n, dim, D)
            query_log_sum = tl.load(sums_base + outer, mask=outer < n, other=0.0)
            query_delta = tl.sum(query_o.to(tl.float32) * query_g.to(tl.float32), 1)
            grad_q = tl.zeros((OUTER, D), tl.float32)
            for start in range(0, n, INNER):
                inner = start + tl.arange(0, INNER)
                keys = _tokens(q_base + dim, inner, n, 3 * dim, D)
                values = _tokens(q_base + 2 * dim, inner, n, 3 * dim, D)
                p = tl.exp2(tl.dot(query, tl.trans(keys)) * SCALE_2 - query_log_sum[:, None])
                p = tl.where(inner[None, :] < n, p, 0.0)
                grad_s = p * (tl.dot(query_g, tl.trans(values)) - query_delta[:, None])
                grad_q += tl.dot(grad_s.to(keys.dtype), keys)
            grad_q *= SCALE
            tl.store(stored, grad_q.to(k.dtype), mask=real)
            sum_q = tl.sum(grad_q, 0)
        tl.store(summed, sum_q)
