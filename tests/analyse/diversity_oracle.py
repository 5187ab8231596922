"""The paper's analysis as plain loops in float64, from whole assignment matrices."""

import math

import numpy as np
from scipy.optimize import linear_sum_assignment


def assignments(heads=3, pictures=80, codes=6, sharpness=4.0, seed=0):
    """Random probabilities ``(m, n, c)``, every head on its own."""
    logits = np.random.default_rng(seed).normal(size=(heads, pictures, codes)) * sharpness
    p = np.exp(logits - logits.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def cosine(a, b):
    return float(sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b))


def similarity(p, i, j):
    codes = p.shape[2]
    return np.array([[cosine(p[i, :, k], p[j, :, q]) for q in range(codes)] for k in range(codes)])


def pair(p, i, j):
    """Decay curves before and after alignment, falling, and the scores: 1 - area."""
    s = similarity(p, i, j)
    rows, columns = linear_sum_assignment(s, maximize=True)
    before = sorted((s[k, k] for k in range(len(s))), reverse=True)
    after = sorted((s[k, q] for k, q in zip(rows, columns, strict=True)), reverse=True)
    return before, after, 1 - sum(before) / len(before), 1 - sum(after) / len(after)


def entropy(p):
    return -sum(x * math.log(x) for x in p if x > 0)


def agreement(p, picture):
    """Mean over pairs of heads of the similarity of the two likeliest codes of a picture."""
    heads = len(p)
    values = [
        similarity(p, i, j)[p[i, picture].argmax(), p[j, picture].argmax()]
        for i in range(heads)
        for j in range(i + 1, heads)
    ]
    return sum(values) / len(values)
