"""The GRU (Cho et al. 2014, "Learning Phrase Representations using RNN Encoder-Decoder")."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from ssm.models.mixers.base import Mixer
from ssm.models.mixers.parts import upcast
from ssm.models.state import LayerOutput, LayerState
from ssm.specs.mixers.gru import GruMixer


class Gru(Mixer, kind="gru"):
    """torch.nn.GRU with the model's width. It is not linear in its state, so it runs step by step.

    State: "memory" h (B, 1, D).
    """

    def __init__(self, spec: GruMixer, d_model: int, n_layers: int):
        super().__init__(spec, d_model, n_layers)
        self.gru = nn.GRU(d_model, d_model, batch_first=True)

    def forward(self, u: Tensor, state: LayerState | None = None, resets: Tensor | None = None) -> LayerOutput:
        """A sequence with resets is split at each token where any batch element is reset."""
        x = u.to(self.gru.all_weights[0][0].dtype)
        h = torch.zeros_like(x[:, :1]) if state is None else state["memory"].to(x.dtype)  # (B, 1, D)
        cuts = [] if resets is None else resets.any(0).nonzero().flatten().tolist()
        outputs = []
        with torch.autocast(u.device.type, enabled=False):  # the recurrence uses the precision of the weights
            for begin, end in itertools.pairwise(sorted({0, *cuts, u.shape[1]})):
                if resets is not None:
                    h = h.masked_fill(resets[:, begin].view(-1, 1, 1), 0.0)
                y, h = self.gru(x[:, begin:end], h.transpose(0, 1).contiguous())  # (B, T, D), (1, B, D)
                h = h.transpose(0, 1)
                outputs.append(y)
        return torch.cat(outputs, 1).to(u.dtype), {"memory": upcast(h)}

    def step(self, u: Tensor, state: LayerState | None = None) -> LayerOutput:
        """h_t = (1 - z_t) n_t + z_t h_{t-1}, with torch.nn.GRU's equations for r, z and n."""
        w_x, w_h, b_x, b_h = self.gru.all_weights[0]  # (3 D, D) twice, (3 D,) twice: r, z, n
        x = u.to(w_x.dtype)
        h = torch.zeros_like(x) if state is None else state["memory"].squeeze(1).to(x.dtype)  # (B, D)
        xr, xz, xn = (x @ w_x.T + b_x).chunk(3, -1)
        hr, hz, hn = (h @ w_h.T + b_h).chunk(3, -1)
        r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
        h = (1 - z) * torch.tanh(xn + r * hn) + z * h
        return h.to(u.dtype), {"memory": upcast(h).unsqueeze(1)}
