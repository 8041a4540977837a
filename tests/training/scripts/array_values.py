"""Logs arrays of JAX or TensorFlow that are hard to read: array_values.py FRAMEWORK. What follows each is recorded."""

import json
import sys
import time
import warnings

import pulsetrain


def jax_values():
    import jax
    import jax.numpy as jnp

    @jax.jit
    def traced(value):
        pulsetrain.log(traced=value)
        return value

    kept = jnp.array(1.0)
    pulsetrain.log(vector=jnp.zeros(3))
    pulsetrain.log(one_of_one=jnp.array([2.5]), half=jnp.array(1.5, jnp.bfloat16), true=jnp.array(True))
    traced(kept)
    pulsetrain.log(key=jax.random.key(0), complex=jnp.array(1j))
    deleted = jnp.array(3.0)
    deleted.delete()
    pulsetrain.log(deleted=deleted)
    for _ in range(3):
        late = jnp.array(3.0)
        pulsetrain.log(deleted_later=late)
        late.delete()
    update = jax.jit(lambda value: value + 1, donate_argnums=0)
    value = jnp.array(0)
    steps_after_warning = 0
    while steps_after_warning < 5:
        steps_after_warning += any("'donated'" in warning for warning in warned)
        pulsetrain.log(donated=value)
        value = update(value)
        time.sleep(0.01)
    return int(value) - 1


def tensorflow_values():
    import tensorflow as tf

    @tf.function
    def traced(value):
        pulsetrain.log(traced=value)
        return value

    pulsetrain.log(vector=tf.zeros(3))
    pulsetrain.log(one_of_one=tf.constant([2.5]), half=tf.constant(1.5, tf.bfloat16), true=tf.constant(True))
    traced(tf.constant(1.0))
    pulsetrain.log(text=tf.constant("high"), complex=tf.constant(1j))
    variable = tf.Variable(1.0)
    pulsetrain.log(variable=variable)
    variable.assign(2.0)


def note_warning(message, *rest):
    warned.append(str(message))
    show_warning(message, *rest)


warned = []
show_warning, warnings.showwarning = warnings.showwarning, note_warning
pulsetrain.log(huge=10**400, loss=0.5)
pulsetrain.log(huge=-(10**5000), loss=0.25)
last_donated = {"jax": jax_values, "tensorflow": tensorflow_values}[sys.argv[1]]()
pulsetrain.log(last=7)
print(json.dumps(last_donated))
