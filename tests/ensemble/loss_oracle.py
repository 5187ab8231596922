"""The paper's general formula, written out as loops in float64 and nothing shared with wessl."""

import math

import torch

NAMES = [
    "unif", "unif-all", "prob", "prob-te", "prob-max", "prob-max-te", "ent", "ent-st", "kl", "var",
]  # fmt: skip
ALIGNED = {"unif", "ent", "ent-st"}
HARD = {"prob-max", "prob-max-te"}


def entropy(p):
    return -sum(v * math.log(v) for v in p.tolist() if v > 0)


def kl(p, q):
    pairs = zip(p.tolist(), q.tolist(), strict=True)
    return sum(a * (math.log(a) - math.log(b)) for a, b in pairs if a > 0)


def score(name, s, t, i, j, y):
    """f_ijy for one image; s and t are (m, c) probabilities."""
    if name in ("unif", "unif-all"):
        return 0.0
    if name in ("prob", "prob-max"):
        return math.log(s[j, y])
    if name in ("prob-te", "prob-max-te"):
        return math.log(t[i, y]) if t[i, y] > 0 else -math.inf
    if name == "ent":
        return -entropy(t[i])
    if name == "ent-st":
        return -entropy(s[j])
    if name == "kl":
        return kl(t[i], s[j])
    codes = range(t.shape[1])
    mean = sum(k * float(t[i, k]) for k in codes)
    variance = sum((k - mean) ** 2 * float(t[i, k]) for k in codes)
    return -0.5 * math.log(variance + 1 / 12)


def default_gamma(name, c):
    return 1.0 if name.startswith("prob") else 0.05 * math.log(c)


def weights(name, log_ps, log_pt, gamma=None, aligned=None, hard=None):
    """(b, m, m, c) float64 weights, one softmax over pairs for each image and code."""
    s, t = log_ps.detach().double().exp(), log_pt.detach().double().exp()
    b, m, c = s.shape
    gamma = default_gamma(name, c) if gamma is None else gamma
    aligned = name in ALIGNED if aligned is None else aligned
    hard = name in HARD if hard is None else hard
    w = torch.zeros(b, m, m, c, dtype=torch.float64)
    for n in range(b):
        for y in range(c):
            pairs = [(i, j) for i in range(m) for j in range(m) if i == j or not aligned]
            f = [score(name, s[n], t[n], i, j, y) for i, j in pairs]
            top = max(f)
            if hard or top == -math.inf:
                e = [float(v == top) for v in f]
            else:
                e = [math.exp((v - top) / gamma) for v in f]
            for (i, j), v in zip(pairs, e, strict=True):
                w[n, i, j, y] = v / sum(e)
    return w


def general_loss(w, log_ps, log_pt):
    """1/n sum_x sum_ij sum_y -w t log s, differentiable in log_ps."""
    t = log_pt.double().exp()
    b, m, c = t.shape
    total = torch.zeros((), dtype=torch.float64)
    for n in range(b):
        for i in range(m):
            for j in range(m):
                for y in range(c):
                    if t[n, i, y] > 0:
                        total = total - w[n, i, j, y] * t[n, i, y] * log_ps[n, j, y].double()
    return total / b


def cross_entropy_of_averages(log_ps, log_pt, gamma):
    """-sum_y mean_i t_i gamma log(mean_j s_j^(1/gamma)), mean over images."""
    s, t = log_ps.double().exp(), log_pt.double().exp()
    return -(t.mean(1) * gamma * (s ** (1 / gamma)).mean(1).log()).sum(-1).mean()
