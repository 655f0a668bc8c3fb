"""Small models and networks for the tests of strategies and of the search for them."""

from collections.abc import Sequence

from hypothesis import strategies as st

from traffic.models.layered import Layer, LayeredModel


def table(name: str, *, features: int = 100, seconds: float = 1e-3) -> Layer:
    """Return an embedding table."""
    return Layer(name, "table", 0, features, seconds, 2 * seconds)


def dense(
    name: str,
    inputs: Sequence[str] = (),
    *,
    parameters: int = 1_000_000,
    features: int = 100,
    seconds: float = 1e-3,
) -> Layer:
    """Return a layer that is summed, with twice the time backward."""
    return Layer(name, "dense", parameters, features, seconds, 2 * seconds, tuple(inputs))


def model_of(*layers: Layer, servers: int = 4, gpus: int = 1, batch: int = 8) -> LayeredModel:
    """Return the model of some layers."""
    return LayeredModel("toy", servers, gpus, batch, layers, "made up")


@st.composite
def models(draw: st.DrawFn, servers: int) -> LayeredModel:
    """Draw a model of a few layers that take each other's outputs in any acyclic way."""
    layers = list[Layer]()
    unused = list[str]()
    for i in range(draw(st.integers(1, 6))):
        name, seconds = f"l{i}", draw(st.integers(0, 20)) * 1e-4
        features = draw(st.integers(0, 5000))
        if draw(st.booleans()):
            layers.append(table(name, features=features, seconds=seconds))
        else:
            inputs = draw(st.sets(st.sampled_from([each.name for each in layers]))) if layers else set()
            parameters = draw(st.integers(0, 5_000_000))
            layers.append(
                dense(name, sorted(inputs), parameters=parameters, features=features, seconds=seconds)
            )
            unused = [each for each in unused if each not in inputs]
        unused.append(name)
    layers.append(dense("last", unused))
    return model_of(*layers, servers=servers, gpus=draw(st.sampled_from([1, 4])))
