"""Parameters of transformers' models that the library's counts leave out, by name: more norms than two a layer, small vectors."""

from workloads.facts.layers import CompressedAttention, Experts


def named(model, family=""):
    """How many more parameters transformers counts in a model of a family."""
    found = 0
    for count, layer in model.stack:
        if family.startswith("gemma"):
            found += count * 2 * model.hidden  # a norm behind each of the two parts
            if isinstance(layer.ffn, Experts):
                found += count * (3 * model.hidden + model.hidden + layer.ffn.experts)  # three norms of the experts; scales of the router
    if any(isinstance(layer.mixer, CompressedAttention) for _, layer in model.stack):
        streams = model.stack[0][1].streams
        found += streams * (streams * model.hidden) + streams + 1  # the streams put together before the head
    return found
