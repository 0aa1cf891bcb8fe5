"""Attention: fused equals explicit, masks mean what they say, nothing attends ahead."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from regard.layers.attention import (
    SCORES,
    AttentionContext,
    CrossAttention,
    SelfAttention,
    attend,
    make_score,
    softmax,
)
from regard.layers.masks import Causal, Documents, Padding, Window
from regard.layers.tap import Tap

B, H, G, T, S, K = 2, 6, 3, 5, 7, 4


def qkv(t=T, s=S, heads=H, kv_heads=H, seed=0):
    torch.manual_seed(seed)
    return (
        torch.randn(B, heads, t, K),
        torch.randn(B, kv_heads, s, K),
        torch.randn(B, kv_heads, s, K),
    )


MASKS = {
    "none": None,
    "padding": Padding(torch.tensor([3, 7])),
    "empty row": Padding(torch.tensor([0, 7])),
    "shifted causal": Causal().shifted(S - T),
    "ragged causal": Causal().shifted(torch.tensor([0, 2])),
    "window": Window(3).shifted(2),
    "causal window": (Causal() & Window(2)).shifted(2),
}


@pytest.mark.parametrize("kv_heads", [H, G])
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("biased", [False, True])
def test_the_fused_path_equals_the_explicit_one(name, kv_heads, biased):
    q, k, v = qkv(kv_heads=kv_heads)
    bias = torch.randn(H, T, S) if biased else None
    tap = Tap(["weights"])
    explicit = attend(q, k, v, MASKS[name], bias=bias, tap=tap)
    fused = attend(q, k, v, MASKS[name], bias=bias)
    assert (fused - explicit).abs().max() < 1e-5
    assert tap.activations["weights"].shape == (B, H, T, S)


def test_attention_is_equation_one_written_out_by_hand():
    q, k, v = qkv()
    for b in range(B):
        for h in range(H):
            weights = torch.exp(q[b, h] @ k[b, h].T / K**0.5)
            expected = (weights / weights.sum(1, keepdim=True)) @ v[b, h]
            torch.testing.assert_close(attend(q, k, v)[b, h], expected, atol=1e-5, rtol=0)


def test_a_query_that_has_no_keys_returns_zeros_and_has_finite_gradients():
    for tap in (None, Tap(["weights"])):
        q, k, v = (x.requires_grad_() for x in qkv())
        y = attend(q, k, v, Padding(torch.tensor([0, S])), tap=tap)
        assert (y[0] == 0).all() and (y[1] != 0).any()
        y.sum().backward()
        assert all(torch.isfinite(x.grad).all() for x in (q, k, v))


@pytest.mark.parametrize("explicit", [False, True])
def test_no_gradient_flows_from_the_future(explicit):
    q, k, v = (x.requires_grad_() for x in qkv(t=6, s=6))
    y = attend(q, k, v, Causal(), tap=Tap(["weights"]) if explicit else None)
    y[:, :, 2].sum().backward()
    assert v.grad[:, :, :3].abs().sum() > 0
    assert v.grad[:, :, 3:].abs().sum() == 0


def test_weights_are_positive_and_sum_to_one_over_the_keys():
    q, k, v = qkv()
    tap = Tap(["weights"])
    attend(q, k, v, Window(4), tap=tap)
    weights = tap.activations["weights"]
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, T))


@pytest.mark.parametrize("name", SCORES)
def test_every_score_has_its_shape_and_drives_attention(name):
    q, k, v = qkv()
    score = make_score(name, H, K)
    assert score(q, k).shape == (B, H, T, S)
    y = attend(q, k, v, score=score)
    expected = softmax(score(q, k)) @ v
    torch.testing.assert_close(y, expected)


def test_scores_are_what_their_names_say():
    q, k, _ = qkv()
    distance = torch.cdist(q, k)
    torch.testing.assert_close(
        make_score("negative_distance", H, K)(q, k), -distance, atol=1e-4, rtol=0
    )
    inverse = 1 / distance  # inverse-distance weighting
    weights = softmax(make_score("negative_log_distance", H, K)(q, k))
    torch.testing.assert_close(weights, inverse / inverse.sum(-1, keepdim=True), atol=1e-4, rtol=0)
    cosine = F.cosine_similarity(q.unsqueeze(-2), k.unsqueeze(-3), dim=-1)
    torch.testing.assert_close(make_score("cosine", H, K)(q, k), cosine * K**0.5, atol=1e-5, rtol=0)
    gaussian = make_score("gaussian", H, K)
    torch.testing.assert_close(gaussian(q, k), -(distance**2) / (2 * K**0.5), atol=1e-4, rtol=0)
    torch.testing.assert_close(
        make_score("bilinear", H, K)(q, k), make_score("scaled_dot", H, K)(q, k)
    )
    additive = make_score("additive", H, K)
    one = (
        torch.tanh(q[1, 2, 3] @ additive.query[2] + k[1, 2, 4] @ additive.key[2])
        @ additive.value[2]
    )
    torch.testing.assert_close(additive(q, k)[1, 2, 3, 4], one[0])


def test_a_distance_of_zero_has_a_finite_score_and_gradient():
    q = torch.ones(1, 1, 2, K, requires_grad=True)
    for name in ("negative_distance", "negative_log_distance", "gaussian"):
        score = make_score(name, 1, K)(q, torch.ones(1, 1, 3, K))
        score.sum().backward()
        assert torch.isfinite(score).all() and torch.isfinite(q.grad).all()


def test_self_attention_equals_torchs_multi_head_attention_on_the_same_weights():
    torch.manual_seed(1)
    ours, theirs = (
        SelfAttention(12, 3, bias=True),
        torch.nn.MultiheadAttention(12, 3, batch_first=True),
    )
    theirs.in_proj_weight.data, theirs.in_proj_bias.data = ours.qkv.weight.data, ours.qkv.bias.data
    theirs.out_proj.weight.data, theirs.out_proj.bias.data = (
        ours.out.weight.data,
        ours.out.bias.data,
    )
    x = torch.randn(B, T, 12)
    blocked = torch.triu(torch.ones(T, T, dtype=torch.bool), 1)
    expected = theirs(x, x, x, attn_mask=blocked, need_weights=False)[0]
    torch.testing.assert_close(
        ours(x, AttentionContext(mask=Causal())), expected, atol=1e-5, rtol=0
    )


def test_cross_attention_reads_a_memory_computed_once():
    torch.manual_seed(2)
    ours, theirs = (
        CrossAttention(12, 3, bias=True),
        torch.nn.MultiheadAttention(12, 3, batch_first=True),
    )
    theirs.in_proj_weight.data = torch.cat([ours.q.weight, ours.kv.weight]).detach()
    theirs.in_proj_bias.data = torch.cat([ours.q.bias, ours.kv.bias]).detach()
    theirs.out_proj.weight.data, theirs.out_proj.bias.data = (
        ours.out.weight.data,
        ours.out.bias.data,
    )
    x, source, lengths = torch.randn(B, T, 12), torch.randn(B, S, 12), torch.tensor([4, 7])
    y = ours(x, ours.memory(source, Padding(lengths)))
    absent = torch.arange(S) >= lengths[:, None]
    expected = theirs(x, source, source, key_padding_mask=absent, need_weights=False)[0]
    torch.testing.assert_close(y, expected, atol=1e-5, rtol=0)


def test_identity_projections_attend_over_the_inputs_themselves():
    x = torch.randn(B, T, 12)
    y = SelfAttention(12, 3, projections="identity")(x, AttentionContext())
    heads = x.unflatten(-1, (3, 4)).transpose(1, 2)
    torch.testing.assert_close(y, attend(heads, heads, heads).transpose(1, 2).flatten(2))
    assert not list(SelfAttention(12, 3, projections="identity").parameters())


def test_documents_keep_packed_records_apart():
    q, k, v = qkv(t=6, s=6)
    segments = torch.tensor([[1, 1, 1, 2, 2, 0], [1, 2, 2, 2, 2, 2]])
    y = attend(q, k, v, Causal() & Documents(segments))
    alone = attend(q[:1, :, 3:5], k[:1, :, 3:5], v[:1, :, 3:5], Causal())
    torch.testing.assert_close(y[:1, :, 3:5], alone, atol=1e-5, rtol=0)
