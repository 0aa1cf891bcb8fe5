"""The symbols of the lectures for stages: see docs/lectures/notation.md."""

from __future__ import annotations

LECTURES: dict[str, tuple[str, ...]] = {
    "id": ("002: X = X₁ … X_N, a sequence of N tokens",),
    "embedding": ("000: x₁ … x₅ ∈ R^d, as columns; here a row", "002: E embedding dimensions"),
    "position": (
        "000: S_i = [sin(ω₁ i), cos(ω₁ i), …]",
        "002: E(p, 2k), E(p, 2k + 1), the code of position p",
    ),
    "norm": ("003: X_l = LayerNorm(X_{l−1} + SubLayer(X_{l−1})): there, after each part",),
    "qkv": ("000: Q = W^Q [x₁ … x₅], K and V likewise, as columns",),
    "q": ("000: q₄, a column of Q", "001: Q_j", "002: X_m W(Q)"),
    "k": ("000: kᵢ, a column of K", "001: K_i", "002: X_n W(K)"),
    "v": ("000: vᵢ, a column of V", "002: X_n W(V)"),
    "rotate": ("000: the code of a position enters queries and keys instead of x",),
    "scores": ("000: α₄,ᵢ = x₄ᵀ xᵢ", "001: K_i · Q_j", "003: f(Q, K), the similarity"),
    "scale": ("000: Kᵀ Q / √d_k, d_k the width of a key",),
    "mask": ("002: 𝓜, a mask that is added; −∞ where it forbids",),
    "weights": ("000: α′₄,ᵢ, after the softmax", "002: w_nm", "003: A ∈ (0, 1)^(T_Q × T_V)"),
    "mix": ("000: V softmax(Kᵀ Q / √d_k)", "002: Y_n = Σ_m w_nm X_m", "003: V′, the output"),
    "out": ("001: W^O, the projection of the concatenated heads head₁ … head_h",),
    "residual": ("003: X_{l−1} + SubLayer(X_{l−1})",),
    "feedforward": ("003: SubLayer(X), applied to every position alike",),
    "logits": ("000: p(s_i | c_i, u) is their softmax",),
    "sample": ("002: π_k, with K tokens kept, renormalized p_k and temperature T",),
    "counts": ("002: N(i, j), a matrix of counts; P(i | j), the probability that i follows j",),
    "gates": ("Hochreiter & Schmidhuber 1997: gates between 0, closed, and 1, open",),
    "cell": ("Gers et al. 2000: the forget gate keeps, the input gate writes",),
    "hyena": ("Poli et al. 2023: streams, short filters, then gates and long filters in turn",),
    "long": ("Poli et al. 2023: y_t = Σ_s h_{t−s} u_s",),
}


def in_lectures(key: str) -> tuple[str, ...]:
    """Return the symbols of the lectures for a stage."""
    return LECTURES[key] if key else ()
