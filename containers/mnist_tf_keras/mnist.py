"""Trains a small convolutional network on MNIST with Keras: mnist.py [--epochs 5] [--batch-size 128]."""

import argparse

import keras
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch-size", type=int, default=128)
arguments = parser.parse_args()

with np.load("/bench/mnist.npz") as data:
    train, test = (data["x_train"], data["y_train"]), (data["x_test"], data["y_test"])
images, digits = train[0][..., None] / np.float32(255), train[1]
model = keras.Sequential(
    [
        keras.Input((28, 28, 1)),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Conv2D(64, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dropout(0.5),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
model.compile(loss="sparse_categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
model.fit(images, digits, epochs=arguments.epochs, batch_size=arguments.batch_size)
_, accuracy = model.evaluate(test[0][..., None] / np.float32(255), test[1], verbose=0)
print(f"accuracy: {accuracy:.4f}")
