"""Twenty losses of a GPT trained by PyTorch, with the weights and batches to train it again elsewhere.

python training.py FILE    writes one safetensors file: the initial weights by name, `batches` of [steps, rows, context + 1], and `losses`.
"""
import json
import struct
import sys

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, CONTEXT, WIDTH, LAYERS, HEADS = 65, 32, 48, 3, 4
ROWS, STEPS = 4, 20


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH, bias=False), nn.LayerNorm(WIDTH, bias=False)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.fc, self.out = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        rows, positions, width = x.shape
        parts = self.qkv(self.ln1(x)).split(width, 2)
        query, key, value = (part.view(rows, positions, HEADS, -1).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(rows, positions, width))
        return x + self.out(F.gelu(self.fc(self.ln2(x))))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln, self.head = nn.LayerNorm(WIDTH, bias=False), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


def write(path, tensors):
    """A safetensors file, by its format: this needs no package besides PyTorch."""
    kinds = {torch.float32: "F32", torch.int64: "I64"}
    header, end = {}, 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": kinds[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(bytes(tensor.contiguous().flatten().view(torch.uint8).tolist()))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Gpt()
    tensors = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    draw = torch.Generator().manual_seed(1000)
    batches = torch.randint(0, VOCABULARY, (STEPS, ROWS, CONTEXT + 1), generator=draw)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    losses = []
    for batch in batches:
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    write(sys.argv[1], {**tensors, "batches": batches, "losses": torch.tensor(losses)})


if __name__ == "__main__":
    main()
