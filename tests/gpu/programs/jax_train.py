"""A training loop through jit and grad in JAX."""
import os

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
os.environ["XLA_FLAGS"] = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"
from digest import need, show, skip  # noqa: E402  the variables must be set before

jax = need("jax")
import jax.numpy as jnp  # noqa: E402

if jax.devices()[0].platform == "cpu":
    skip("needs a JAX that can use the GPU")

x = jax.random.normal(jax.random.key(1), (512, 256))
weights = {"a": jax.random.normal(jax.random.key(2), (256, 512)) / 16,
           "b": jax.random.normal(jax.random.key(3), (512, 256)) / 16}


@jax.jit
def step(weights):
    def loss(w):
        return jnp.mean((jnp.tanh(x @ w["a"]) @ w["b"] - x) ** 2)
    value, gradient = jax.value_and_grad(loss)(weights)
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradient), value


for _ in range(300):
    weights, value = step(weights)
print("on", jax.devices()[0].platform)
show("loss", value)
show("weights", weights["a"])
