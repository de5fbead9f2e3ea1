"""What would a model's tensors be, if only its config is known?

A fall-back: true headers are better by far (a checkpoint mixes precisions and carries scales), so what comes from here
is marked ``estimated`` wherever it is shown.
"""

from stoker.predict.roles import Part, Parts, Role
from stoker.predict.shape import Attends, Layer, Shape

_LATENT_HEAD = 128  # of MLA's heads without rope: the same in every family that is published


def parts(shape: Shape, *, dtype: str = "BF16", element_bytes: float = 2.0, linear_bytes: float = 0.0) -> Parts:
    """Reckon a checkpoint from its shape; ``linear_bytes``: bytes of an element in quantised linear layers."""
    linear = linear_bytes or element_bytes
    narrow = dtype if linear == element_bytes else f"{linear:g} bytes"
    found: list[Part] = []

    def add(role: Role, layer: int, values: float, *, plain: bool = False) -> None:
        size = int(values * (element_bytes if plain else linear))
        if size:
            found.append(Part(role=role, layer=layer, dtype=dtype if plain else narrow, size_bytes=size))

    table = shape.vocab * shape.hidden
    add(Role.EMBEDDING, -1, table, plain=True)
    if not shape.tied:
        add(Role.HEAD, -1, table, plain=True)
    for i, layer in enumerate(shape.layers):
        add(Role.NORM, i, 2 * shape.hidden, plain=True)
        for role, values in _attention(shape, layer).items():
            add(role, i, values)
        for role, values in _feed_forward(shape, layer).items():
            add(role, i, values, plain=role is Role.ROUTER)
    return Parts(parts=tuple(found), estimated=True)


def _attention(shape: Shape, layer: Layer) -> dict[Role, float]:
    hidden = shape.hidden
    if layer.attends in (Attends.LATENT, Attends.SPARSE):
        return {
            Role.LATENT: hidden * (layer.latent_rank + layer.rope_dim),
            Role.LATENT_UP: layer.latent_rank * shape.heads * 2 * _LATENT_HEAD,
            Role.ATTENTION: hidden * shape.heads * (2 * _LATENT_HEAD + layer.rope_dim),
            Role.INDEXER: hidden * layer.index_dim,
        }
    if layer.attends in (Attends.LINEAR, Attends.STATE):
        inner = layer.state_heads * (layer.state_columns if layer.attends is Attends.LINEAR else layer.state_rows)
        return {Role.STATE: hidden * (layer.conv_dim + 2 * inner) + layer.conv_dim * layer.conv_width}
    if layer.attends is Attends.NONE:
        return {}
    return {
        Role.ATTENTION: 2 * hidden * shape.heads * layer.head_dim,
        Role.KEYS_VALUES: hidden * layer.kv_heads * (layer.head_dim + (layer.value_dim or layer.head_dim)),
    }


def _feed_forward(shape: Shape, layer: Layer) -> dict[Role, float]:
    matrices = 3 if shape.gated else 2
    if layer.experts:
        one = matrices * shape.hidden * shape.expert_intermediate
        return {
            Role.EXPERTS: shape.experts * one,
            Role.SHARED: shape.shared_experts * one,
            Role.ROUTER: shape.experts * shape.hidden,
        }
    if layer.attends is Attends.STATE:
        return {}  # a state block has no feed-forward of its own
    return {Role.DENSE: matrices * shape.hidden * shape.intermediate}
